"""Which rank a process is, where ranks meet, how they are reached, and what their MPI is called."""

import socket

import pytest

from stagebench.suite.worker import rendezvous
from stagebench.suite.worker.ranks import NAMES, own_rank
from stagebench.suite.worker.rendezvous import address_towards, free_port, interface_of, meeting_place
from tests.support.errors import raising


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, ("MASTER_ADDR", "Horovod's ranks")),
        ({"MASTER_ADDR": "node1"}, ("MASTER_PORT", "Horovod's ranks")),
        ({"MASTER_PORT": "1"}, ("MASTER_ADDR", "Horovod's ranks")),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "ssh"}, ("ssh",)),
        ({"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, ()),
    ],
)
def test_the_launcher_names_the_place_whose_port_is_a_number(monkeypatch, variables, named):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if not named:
        assert meeting_place("gloo's ranks") == ("node1", 29500)
        return
    with raising(ValueError, *named):
        meeting_place("Horovod's ranks")


def test_an_address_belongs_to_an_interface_where_the_route_begins():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
    assert address_towards("127.0.0.1") == "127.0.0.1"
    with socket.socket() as door:
        door.bind(("127.0.0.1", free_port()))


@pytest.mark.parametrize("known", ["32768\t60999\n", "1024 65535\n", "", None])
def test_a_port_is_none_that_the_system_gives_away_where_there_are_others(tmp_path, known):
    own = tmp_path / "range"
    if known is not None:
        own.write_text(known)
    found = {free_port(str(own)) for _ in range(20)}
    assert len(found) > 1
    assert all(20000 <= port < 32768 for port in found) or not (known or "").startswith("32768")


def test_a_port_that_somebody_listens_at_is_left_out(tmp_path, monkeypatch):
    only = free_port()
    (tmp_path / "range").write_text("%d 60999" % (only + 1))
    monkeypatch.setattr(rendezvous, "LOWEST", only)
    with socket.socket() as door:
        door.bind(("", only))
        assert free_port(str(tmp_path / "range")) != only
    assert free_port(str(tmp_path / "range")) == only


ENGINE = {"LSF_RANK": "5", "LSF_SIZE": "8", "LSF_LOCAL": "1"}
NAMED = {NAMES: "LSF_RANK,LSF_SIZE,LSF_LOCAL"}


def test_an_engine_s_variables_are_those_that_are_named_all_of_them_and_our_own_come_first(monkeypatch):
    assert own_rank(dict(ENGINE, **NAMED)) == (5, 8, 1)
    assert own_rank(ENGINE) == own_rank({"PATH": "x"}) == (0, 1, 0), "who was started by nobody is alone"
    with raising(KeyError, "LSF_RANK"):
        own_rank(NAMED)
    assert own_rank(dict(ENGINE, STAGEBENCH_RANK="1", STAGEBENCH_WORLD="2", **NAMED)) == (1, 2, 1)
    assert own_rank({"STAGEBENCH_RANK": "3", "STAGEBENCH_WORLD": "4"}) == (3, 4, 3)
    for name, value in (("RANK", "2"), ("WORLD", "3"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv("STAGEBENCH_" + name, value)
    assert own_rank() == (2, 3, 0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Open MPI v5.0.11, package: Open MPI conda@fv Distribution, ident: 5.0.11\0", "Open MPI v5.0.11"),
        ("MPICH Version:      4.2.3\nMPICH Release date: Thu Sep 26 2024\nMPICH ABI: 16:3:4\n", "MPICH Version: 4.2.3"),
        ("Intel(R) MPI Library 2021.11 for Linux* OS\n", "Intel(R) MPI Library 2021.11 for Linux* OS"),
    ],
)
def test_a_library_is_named_in_one_line(text, name):
    assert rendezvous.named(text) == name
