"""Servers by address: what `export-network` writes, computed by another library in a process of its own."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stagebench.adapters.reference.inference import ReferencePredictor
from stagebench.suite.cli import app
from stagebench.suite.plugins import graph_of, model_servers, workloads
from stagebench.suite.processes.launch import started
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.asking import ServerEnded
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.contract import Unavailable
from stagebench.suite.worker.elsewhere import Elsewhere
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from tests.support.errors import raising
from tests.support.trainers import setup

PROGRAM = Path(__file__).with_name("elsewhere_program.py")
PATHS = {"tensorflow-serving": "/v1/models/net", "sagemaker": "", "open-inference": "/v2/models/net", "raw": "/numbers"}
DUE = np.arange(1.0, 41.0) / 100.0


@pytest.fixture(scope="module")
def asked():
    """Gives samples, and the answers of the network as every case's predictor has it."""
    graph = graph_of(workloads()["mnist_small"])
    predictor = ReferencePredictor(setup(batch=2, precision="float64"))
    predictor.start()
    predictor.load(graph, tensors_of(graph, weights.for_proof(graph)))
    found = Asked(predictor, synthetic(graph, 16, (1, 1)).inputs)
    assert found.tells
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Gives the network's file."""
    file = str(tmp_path_factory.mktemp("exported") / "net.onnx")
    assert CliRunner().invoke(app.build(), ["export-network", "mnist_small", "-o", file]).exit_code == 0
    return file


@pytest.fixture(scope="module")
def serve(exported):
    """Gives what starts a server of the exported network, one for each fault; it returns its address."""
    running = []

    @cache
    def begun(fault=""):
        words = [sys.executable, str(PROGRAM), exported, fault]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        return f"http://127.0.0.1:{int(running[-1].stdout.readline())}"

    yield begun
    for each in running:
        each.kill()
        each.communicate()


def elsewhere(asked, address, name="tensorflow-serving", **rule):
    rule = Serving(model_server=name, address=address, **{"bound_ms": 20_000.0, **rule})
    return Elsewhere(asked, rule, started(name, {}, Path()))


def test_every_server_without_a_program_is_tried():
    by_http = {name for name, server in model_servers().items() if not server.program and not server.requires}
    assert by_http == set(PATHS), "tests/cluster/model_servers/test_grpc.py tries the others"


@pytest.mark.parametrize("name", PATHS)
def test_every_answer_is_right_and_what_is_not_seen_is_not_said(asked, serve, name):
    with elsewhere(asked, serve() + PATHS[name], name).running() as server:
        assert server.capacity() > 0
        found = server.attempt(100.0, DUE)
        use = server.use()
    assert len(found.latency_s) == found.compared == found.scheduled == len(found.lag_s) == 40
    assert (found.wrong, found.malformed, found.refused, found.timed_out, found.failed) == (0,) * 5
    assert found.batches == found.batch_s == []
    assert set(found.stage_s) == {"lag", "server"}
    assert sum(found.stage_s.values()) == pytest.approx(np.mean(found.latency_s))
    assert [each.queries for each in use.closed_loops] == [1, 2, 4]
    seen = {key: value for key, value in use._asdict().items() if key not in ("name", "closed_loops")}
    assert seen == {"version": "", "since_arrival": False, **dict.fromkeys(set(seen) - {"version", "since_arrival"})}


@pytest.mark.parametrize(
    ("fault", "count"),
    [("lies later", "wrong"), ("swaps", "wrong"), ("says nothing", "malformed"), ("refuses", "refused")],
)
def test_what_became_of_each_query_is_counted(asked, serve, fault, count):
    with elsewhere(asked, serve(fault) + "/v1/models/net").running() as server:
        found = server.attempt(100.0, DUE)
        if count != "wrong":
            with pytest.raises(ServerEnded, match=r"status (200|503)"):
                server.capacity()
    assert getattr(found, count) == 40
    assert len(found.latency_s) == (40 if count == "wrong" else 0)


@pytest.mark.parametrize(
    ("fault", "path", "name", "values"),
    [
        ("lies", "/v1/models/net", "tensorflow-serving", ["/v1/models/net"]),
        ("", "/v1/models/other", "tensorflow-serving", ["/v1/models/other", 404]),
        ("loads", "", "sagemaker", ["/ping", 404]),
        ("", "/other", "raw", ["/other", 404, "no such"]),
        ("", "/v1/models/net:predict", "raw", ["/v1/models/net:predict"]),
    ],
)
def test_an_address_that_does_not_serve_the_network_is_named(asked, serve, fault, path, name, values):
    with raising(Unavailable, *values), elsewhere(asked, serve(fault) + path, name).running():
        pass


def test_a_cache_is_refused_by_name(asked, serve):
    address = serve("remembers") + "/numbers"
    with raising(Unavailable, address), elsewhere(asked, address, "raw").running():
        pass
    with elsewhere(asked, serve("is slow") + "/numbers", "raw").running():
        pass


@pytest.mark.parametrize("name", ["tensorflow-serving", "raw"])
def test_an_address_where_nothing_listens_is_named(asked, name):
    with (
        raising(Unavailable, "http://127.0.0.1:9/x", 111),
        elsewhere(asked, "http://127.0.0.1:9/x", name).running(),
    ):
        pass
