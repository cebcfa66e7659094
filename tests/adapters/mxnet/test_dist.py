"""The distributed stores with real servers: two workers of the synchronous ones, one and two of dist_async."""

import contextlib
import socket
import threading
from functools import partial

import numpy as np
import pytest

from stagebench.adapters.mxnet.server import loopback_of, numeric
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.rendezvous import free_port
from stagebench.workloads.networks import by_name
from tests.support import processes, proofs
from tests.support.errors import raising

# What a ps-lite scheduler says first, in ZMTP 3.0 (https://rfc.zeromq.org/spec/23): a greeting, and its name, "ps1".
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY" + b"\x0bSocket-Type\0\0\0\x06DEALER" + b"\x08Identity\0\0\0\x03ps1"
RULES = {
    "sgd": SGD(0.001, 0.9, 0.0),
    "adam": Adam(1e-3, 0.9, 0.999, 1e-7, 1e-3),
    "adamw": Adam(1e-3, 0.9, 0.999, 1e-8, 0.05, decoupled=True, decays="matrices"),
}
STEPS = 20  # of rank.py's first worker in training


@pytest.mark.parametrize(
    ("strategy", "workers", "devices", "tuning", "servers", "optimiser"),
    [
        ("dist_sync", 2, 1, "tuned", 2, "adam"),
        ("dist_async", 1, 1, "default", 2, "adam"),
        ("dist_async", 1, 1, "tuned", 1, "adamw"),
        ("dist_device_sync", 2, 2, "default", 2, "sgd"),
        ("dist_device_sync", 2, 2, "tuned", 1, "adam"),
    ],
)
def test_a_store_is_proven(run_group, tmp_path, strategy, workers, devices, tuning, servers, optimiser):
    """With all that conformance does not ask for: several servers, devices of a worker, Adam."""
    workload, rule = by_name()["mnist_small"], RULES[optimiser]
    graph = workload.graph()
    proofs.write_oracle(graph, workers * devices * workload.proof_batch, tmp_path / "oracle", rule)
    case = {"strategy": strategy, "devices": devices, "tuning": tuning, "optimiser": rule}
    found = run_group("prove", tmp_path, workers, servers, **case)
    assert [each["joined"] for each in found] == [[rank, workers, devices, "ps-lite"] for rank in range(workers)]
    proofs.assert_proven(graph, *found)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_dist_sync_averages_and_a_lone_step_does_not(run_group, tmp_path, tuning):
    found = run_group("exchange", tmp_path, strategy="dist_sync", tuning=tuning)
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    assert "in place" in found[0]["notes"]["exchange"]
    proofs.assert_exchanged(partial(processes.saved_by, tmp_path), rtol=1e-6, atol=1e-9)


def test_dist_async_updates_on_the_servers(run_group, tmp_path):
    found = run_group("exchange", tmp_path, strategy="dist_async")
    assert "on the servers" in found[0]["notes"]["optimiser"]
    megabytes = 4e-6 * by_name()["mnist_small"].graph().parameter_count
    assert f"first copy the gradients, {megabytes:.1f} MB; native does not" in found[0]["notes"]["exchange"]
    local, shared, staged = (processes.saved_by(tmp_path, name) for name in ("local", "shared", "staged"))
    for name in local[0]:
        for rank in range(2):  # each keeps its own gradients; the weights have moved
            np.testing.assert_array_equal(shared[rank][name], local[rank][name])
            assert np.abs(staged[rank][name]).max() > 0


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_training_says_how_stale_its_weights_were(run_group, tmp_path, optimiser):
    """The number on the servers counts both workers' updates: no worker's count misses one of the other's."""
    found = run_group("train", tmp_path, strategy="dist_async", optimiser=RULES[optimiser])
    counts = [each["notes"]["staleness"] for each in found]
    assert [count["steps"] for count in counts] == [STEPS, 2 * STEPS]
    assert not any("staleness" in each["before"] for each in found)
    assert max(each["joint"] for each in found) == 3 * STEPS // 2, "of both workers together"
    others = [count["mean"] * count["steps"] for count in counts]
    assert 0 < others[0] <= 2 * STEPS
    assert 0 < others[1] <= STEPS
    assert all(count["mean"] <= count["max"] <= 2 * STEPS for count in counts)
    assert all(np.isfinite(each["loss"]) for each in found)


def test_a_lone_worker_has_no_stale_weights(run_group, tmp_path):
    (found,) = run_group("train", tmp_path, workers=1, strategy="dist_async")
    assert found["notes"]["staleness"] == {"mean": 0.0, "max": 0, "steps": STEPS}


@pytest.fixture
def left_behind():
    """A port of this host at which another training's scheduler looks for a worker that it has lost."""
    port, over = free_port(), threading.Event()

    def call():
        while not over.wait(0.01):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as line:
                line.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
                while line.recv(4096):
                    pass

    caller = threading.Thread(target=call)
    caller.start()
    yield port
    over.set()
    caller.join()


def test_what_another_training_left_behind_is_not_taken_for_one_s_own(run_group, tmp_path, monkeypatch, left_behind):
    monkeypatch.setenv("PORT", str(left_behind))  # ps-lite's word for where a member listens
    found = run_group("exchange", tmp_path, strategy="dist_sync")
    assert [each["maximum"] for each in found] == [1.0, 1.0]


def test_trainings_on_one_host_have_addresses_of_their_own():
    assert [loopback_of(port) for port in (20000, 24513, 65535)] == ["127.78.32.1", "127.95.193.1", "127.255.255.1"]


def test_an_address_that_other_hosts_cannot_reach_is_refused_where_there_are_some():
    assert numeric("localhost", nodes=1) == "127.0.0.1"
    assert numeric("192.0.2.7", nodes=2) == "192.0.2.7"
    with raising(ValueError, "localhost", "127.0.0.1"):
        numeric("localhost", nodes=2)


def test_a_missing_meeting_place_is_named(trainer, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"):
        monkeypatch.delenv(name, raising=False)
    with raising(ValueError, "MASTER_ADDR"):
        trainer(strategy="dist_sync")
