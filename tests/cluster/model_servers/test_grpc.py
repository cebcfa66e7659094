"""Queries over gRPC to a server by its address; what became of each over gRPC is in test_planted_faults.py."""

from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.contract import Unavailable as Refused
from stagebench.suite.worker.elsewhere import Elsewhere
from stagebench.suite.worker.model_server import Behind
from tests.support.echo import SAMPLES, echo
from tests.support.errors import raising

pytestmark = pytest.mark.slow
CHECKOUT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("grpc_program.py")
DUE = np.arange(1.0, 41.0) / 100.0


@pytest.fixture
def behind(installed, tmp_path):
    """Gives an echo behind the server with a fault."""
    triton = installed("triton-grpc")

    def made(fault, **rule):
        server = triton._replace(
            tokens=[triton.tokens[0], str(PROGRAM)], bundle=str(CHECKOUT), environ={"FAULT": fault}
        )
        rule = Serving(**{"bound_ms": 20_000.0, **rule})  # a busy machine's queue is not hopeless soon
        return Behind(Asked(echo(), SAMPLES), rule, server, str(tmp_path))

    return made


@pytest.fixture
def elsewhere(installed):
    """Gives what asks a server that runs, by its address; the predictor behind it answers from the same loop."""

    def asked(behind=None, model="queries"):
        address = f"grpc://127.0.0.1:{behind._told.port if behind else 9}/{model}"
        rule = Serving(model_server="open-inference-grpc", address=address, bound_ms=20_000.0)
        found = Elsewhere(Asked(echo(), SAMPLES), rule, installed(rule.model_server))
        if behind:
            found._selector = behind._selector
        return found

    return asked


def test_triton_is_asked_by_its_address(elsewhere, installed, tmp_path):
    rule, triton = Serving(bound_ms=20_000.0), installed("triton-grpc")
    with Behind(Asked(echo(), SAMPLES), rule, triton, str(tmp_path)).running() as server:
        with elsewhere(server).running() as other:
            assert other.capacity() > 0
            found = other.attempt(100.0, DUE)
            server._selector.unregister(other._generator.stdout)
        with raising(Refused, "/nets", "nets"), elsewhere(server, "nets").running():
            pass
    assert len(found.latency_s) == found.compared == found.scheduled == 40
    assert (found.wrong, found.malformed, found.refused, found.timed_out, found.failed) == (0,) * 5
    assert other.use().name == "open-inference-grpc"


def test_what_a_server_at_an_address_does_wrong_is_counted(elsewhere, behind):
    with behind("refuses").running() as server, elsewhere(server).running() as other:
        other.attempt(100.0, DUE[:2])
        found = other.attempt(100.0, DUE)
    assert (found.refused, found.latency_s) == (40, [])


def test_an_address_where_nothing_listens_is_named(elsewhere):
    with raising(Refused, "grpc://127.0.0.1:9/queries", 503), elsewhere().running():
        pass
