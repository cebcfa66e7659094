"""Queries over gRPC: a server of gRPC's own library, in Triton's environment, answers them and says what it read."""

from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.launch import started
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.model_server import Behind
from tests.support.echo import SAMPLES, echo

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("grpc_program.py")
DUE = np.arange(1.0, 41.0) / 100.0


@pytest.fixture
def behind(tmp_path):
    """Gives an echo behind the server with a fault."""
    try:
        triton = started("triton-grpc", {}, tmp_path / "bundle")
    except Unavailable as error:
        pytest.skip(str(error))

    def made(fault, **rule):
        server = triton._replace(
            tokens=[triton.tokens[0], str(PROGRAM)], bundle=str(CHECKOUT), environ={"FAULT": fault}
        )
        rule = Serving(**{"bound_ms": 20_000.0, **rule})  # a busy machine's queue is not hopeless soon
        return Behind(Asked(echo(), SAMPLES), rule, server, str(tmp_path))

    return made


@pytest.mark.parametrize(
    ("fault", "count"),
    [
        ("swaps", "wrong"),
        ("says nothing", "malformed"),
        ("refuses", "refused"),
        ("is not there", "refused"),
        ("gives up", "timed_out"),
        ("fails", "failed"),
    ],
)
def test_what_became_of_each_query_is_counted(behind, fault, count):
    with behind(fault).running() as server:
        server.attempt(100.0, DUE[:3])
        found = server.attempt(100.0, DUE)
    assert getattr(found, count) == 40
    lost = found.malformed + found.refused + found.timed_out + found.failed
    assert len(found.latency_s) + lost == found.scheduled
    assert (count == "wrong") == (lost == 0)


def test_one_answer_that_never_comes_ends_no_try(behind):
    with behind("forgets one", bound_ms=1000.0).running() as server:
        found = server.attempt(50.0, np.arange(1.0, 401.0) / 50.0)
    assert len(found.latency_s) + found.timed_out == len(found.lag_s) == 400
    assert found.timed_out
