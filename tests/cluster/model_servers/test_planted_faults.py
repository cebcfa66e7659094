"""A model server that works, and what is said of one that does not; over HTTP and, in Triton's environment, gRPC."""

import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker import model_server
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.asking import ServerEnded
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.generator import Precise
from stagebench.suite.worker.job import ModelServer
from stagebench.suite.worker.messages import PARTS_BEHIND
from stagebench.suite.worker.model_server import Behind
from tests.support.echo import SAMPLES, echo
from tests.support.errors import raising
from tests.support.started import running_in

CHECKOUT = Path(__file__).parents[3]
PROGRAM, OVER_GRPC = (Path(__file__).with_name(f"{name}_program.py") for name in ("plain", "grpc"))
DUE = np.arange(1.0, 41.0) / 100.0


@pytest.fixture
def behind(installed, tmp_path):
    """Gives an echo behind the server with a fault."""

    def made(fault="", batch_s=0.0, protocol="http", **rule):
        if protocol == "http":
            server = ModelServer("plain", "1", [sys.executable, str(PROGRAM)], str(CHECKOUT), "/")
        else:
            triton = installed("triton-grpc")
            server = triton._replace(tokens=[triton.tokens[0], str(OVER_GRPC)], bundle=str(CHECKOUT))
        server = server._replace(environ={"FAULT": fault})
        rule = Serving(**{"bound_ms": 20_000.0, **rule})  # a busy machine's queue is not hopeless soon
        return Behind(Asked(echo(batch_s=batch_s), SAMPLES), rule, server, str(tmp_path))

    return made


def test_every_query_is_answered_and_its_latency_is_its_parts(behind):
    with behind(batch_s=0.002).running() as server:
        capacity = server.capacity()
        found = server.attempt(100.0, DUE)
        use = server.use()
    assert (use.name, use.version) == ("plain", "1")
    assert use.ready_s > 0
    assert use.alone_s > 0
    assert use.processes == 1
    assert use.resident_bytes > 1 << 20
    assert use.cores >= 0
    assert [each.queries for each in use.closed_loops] == [1, 2, 4, 8]
    assert capacity > 0
    assert len(found.latency_s) == len(found.lag_s) == sum(found.batches) == found.compared == found.scheduled == 40
    assert (found.wrong, found.malformed, found.refused, found.timed_out, found.failed) == (0,) * 5
    assert set(found.stage_s) == {*PARTS_BEHIND, "back"}
    assert min(found.stage_s.values()) >= 0
    assert found.stage_s["forward"] >= 0.002
    assert sum(found.stage_s.values()) == pytest.approx(np.mean(found.latency_s))
    assert min(found.lag_s) >= 0


COUNTED = {"swaps": "wrong", "says nothing": "malformed", "refuses": "refused", "gives up": "timed_out"}
COUNTED["fails"] = "failed"
OF_GRPC = {**COUNTED, "is not there": "refused"}


@pytest.mark.parametrize(
    ("protocol", "fault", "count"),
    [
        *(("http", *row) for row in COUNTED.items()),
        *(pytest.param("grpc", *row, marks=pytest.mark.slow) for row in OF_GRPC.items()),
    ],
)
def test_what_became_of_each_query_is_counted(behind, protocol, fault, count):
    with behind(fault, protocol=protocol).running() as server:
        server.attempt(100.0, DUE[:3])
        found = server.attempt(100.0, DUE)
    assert getattr(found, count) == 40
    lost = found.malformed + found.refused + found.timed_out + found.failed
    assert len(found.latency_s) + lost == found.scheduled
    assert (count == "wrong") == (lost == 0)


def test_a_queue_that_grows_beyond_hope_ends_the_try(behind):
    with behind(bound_ms=1e-3).running() as server:
        found = server.attempt(1e6, np.arange(2000) / 1e6)
    assert len(found.latency_s) + found.timed_out == len(found.lag_s) < found.scheduled


def test_a_server_that_ends_is_named_with_its_last_words(behind):
    said = "the model server plain ended with exit code 3; .*; its last lines: no more$"
    with pytest.raises(ServerEnded, match=said), behind("dies").running() as server:
        server.attempt(100.0, DUE)


def test_a_server_that_never_is_ready_is_named(behind, monkeypatch):
    monkeypatch.setattr(model_server, "READY_S", 1.0)
    with raising(ServerEnded, "plain", "1 s"), behind("never is ready").running():
        pass


def test_a_first_answer_that_is_wrong_ends_it(behind):
    with pytest.raises(ServerEnded, match="answered the first query wrongly"), behind("lies").running():
        pass


def test_what_a_server_leaves_is_ended(behind):
    with behind("leaves a process").running() as server:
        folder = Path(server._told.memory).parent
        assert len(running_in(folder)) == 3, "the guard starts elsewhere or here, the server and its child"
    assert running_in(folder) == []
    assert not folder.exists()


def test_what_still_listens_is_named(behind):
    with behind().running() as server:
        port = server._told.port
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(ServerEnded, match=f"has ended, and something still listens at its port {port}"):
            server._check_gone()


@pytest.mark.parametrize("protocol", ["http", pytest.param("grpc", marks=pytest.mark.slow)])
def test_one_answer_that_never_comes_ends_no_try(behind, protocol):
    with behind("forgets one", protocol=protocol, bound_ms=1000.0).running() as server:
        found = server.attempt(50.0, np.arange(1.0, 401.0) / 50.0)
    assert len(found.latency_s) + found.timed_out == len(found.lag_s) == 400
    assert found.timed_out


def test_a_late_answer_is_not_that_to_a_query_of_the_next_try(behind):
    with behind("is late once").running() as server:
        server._do({"due": [0.0], "hopeless_s": 60.0}, 0.1)
        server._do({"due": [0.0], "hopeless_s": 60.0}, 0.1)
        found = server.attempt(100.0, DUE)
    assert (len(found.latency_s), found.wrong, found.failed) == (40, 0, 0)


def test_answers_from_a_cache_are_named(behind):
    said = "gave [0-9]+ answers to queries of which [0-9]+ reached the predictor: it has a cache"
    with pytest.raises(ServerEnded, match=said), behind("remembers").running() as server:
        server.attempt(100.0, DUE)


def test_a_worker_that_is_killed_in_its_batch_is_the_server_s_end(behind):
    said = "the model server plain ended with exit code -9"
    with pytest.raises(ServerEnded, match=said), behind("is killed", batch_s=0.2).running() as server:
        server.attempt(100.0, DUE)


def test_a_generator_waits_in_microseconds():
    """A selector of Python's own waits whole milliseconds; the best of several is no matter of the machine's load."""
    with Precise() as selector:
        waits = []
        for _ in range(200):
            begin = time.perf_counter()
            selector.select(0.0015)
            waits.append(time.perf_counter() - begin)
    assert min(waits) < 0.0019
