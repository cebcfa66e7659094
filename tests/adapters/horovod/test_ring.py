"""How ranks find each other, and how Horovod is set."""

import os
import socket
import urllib.request

import pytest
from engine import trainer

from stagebench.adapters.horovod import ranks as ring
from tests.support import trainers
from tests.support.errors import raising


def test_the_knobs_are_horovod_s_variables():
    found = ring.settings({"fusion_threshold_mb": 0.5, "cycle_time_ms": 3}, "mpi")
    assert found["HOROVOD_FUSION_THRESHOLD"] == str(512 * 1024)
    assert found["HOROVOD_CYCLE_TIME"] == "3.0"
    assert found["HOROVOD_CONTROLLER"] == found["HOROVOD_CPU_OPERATIONS"] == "mpi"


@pytest.mark.parametrize(
    ("hosts", "rank", "numbers"),
    [
        (["a"], 0, (0, 1, 0, 1, 0, 1)),
        (["a", "a", "b", "b"], 3, (3, 4, 1, 2, 1, 2)),
        (["a", "b", "a", "b"], 2, (2, 4, 1, 2, 0, 2)),
        (["a", "a", "b"], 1, (1, 3, 1, 2, 0, 1)),  # the second host has no second rank
        (["a", "b", "b"], 2, (2, 3, 1, 2, 0, 1)),
    ],
)
def test_a_rank_is_counted_in_its_host_and_across_them(hosts, rank, numbers):
    found = ring.numbers(rank, hosts)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert tuple(int(found["HOROVOD_" + name]) for name in names) == numbers
    assert found["HOROVOD_HOSTNAME"] == hosts[rank]


@pytest.mark.parametrize(
    ("environ", "knobs", "by"),
    [
        ({}, {}, "gloo"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {}, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, {"controller": "gloo"}, "gloo"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "STAGEBENCH_RANK": "0"}, {}, "gloo"),
        ({}, {"controller": "mpi"}, "mpi"),
    ],
)
def test_the_controller_is_the_launcher_s_unless_asked_for(monkeypatch, environ, knobs, by):
    for name in ("OMPI_COMM_WORLD_SIZE", "STAGEBENCH_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert ring.controller(trainers.setup(strategy="allreduce", knobs=knobs)) == by


def test_a_host_whose_own_name_has_no_address_is_refused_by_it(monkeypatch):
    monkeypatch.setattr(ring.socket, "gethostname", lambda: "nowhere.invalid")
    with raising(ValueError, "nowhere.invalid"):
        ring.own_address()


@pytest.mark.parametrize(
    ("meant", "hosts", "refused"),
    [
        ("127.0.1.1", ["a", "b"], "a at 127.0.1.1, b at 127.0.1.1"),
        ("::1", ["b", "a", "b"], "b at ::1, a at ::1"),
        ("127.0.1.1", ["a", "a"], None),
        ("10.0.0.1", ["a", "b"], None),
        ("fe80::1%eth0", ["a", "b"], None),
    ],
)
def test_hosts_whose_own_names_mean_themselves_alone_are_refused_by_them(monkeypatch, meant, hosts, refused):
    """As Debian's installer writes it: between hosts, Horovod's ranks would each connect to their own."""
    found = [(socket.AF_INET6 if ":" in meant else socket.AF_INET, socket.SOCK_STREAM, 6, "", (meant, 0))]
    monkeypatch.setattr(ring.socket, "getaddrinfo", lambda name, port, **options: found)
    addresses = [ring.own_address() for _ in hosts]
    if refused is None:
        ring.refuse_loopback(hosts, addresses)
    else:
        with raising(ValueError, refused):
            ring.refuse_loopback(hosts, addresses)


def test_one_host_that_means_itself_alone_is_enough():
    with raising(ValueError, "127.0.1.1"):
        ring.refuse_loopback(["a", "b"], ["127.0.1.1", "10.0.0.2"])


def test_one_rank_by_itself_wants_an_address_for_its_hosts_name_too(monkeypatch):
    monkeypatch.setattr(ring.socket, "gethostname", lambda: "nowhere.invalid")
    with raising(ValueError, "nowhere.invalid"):
        trainer(trainers.setup(strategy="allreduce", knobs={"controller": "gloo"})).start()


def test_a_missing_meeting_place_is_named(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with raising(ValueError, "MASTER_ADDR", "Horovod's ranks"):
        trainer(trainers.setup(strategy="allreduce", world=2)).start()


def test_the_store_is_open_as_long_as_ranks_join():
    store = ring.Store("127.0.0.1")
    place = "http://{}:{}/global/0".format(*store.address)
    try:
        with urllib.request.urlopen(urllib.request.Request(place, b"here", method="PUT"), timeout=60) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(place, timeout=60) as answer:
            assert answer.read() == b"here"
    finally:
        store.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(place, timeout=60)
    assert os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR") is None
