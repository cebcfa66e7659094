"""Every model server that is installed here, for real, in front of a predictor whose answers are the samples."""

import contextlib
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from stagebench.suite.plugins import model_servers
from stagebench.suite.worker.arrivals import Asked
from stagebench.suite.worker.asking import ServerEnded
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.model_server import Behind
from tests.support.echo import SAMPLES, echo
from tests.support.errors import raising
from tests.support.started import running_in

pytestmark = pytest.mark.slow
DUE = np.arange(1.0, 401.0) / 400.0


STARTED = [name for name, server in model_servers().items() if server.program]
OPTIONS = {
    "bentoml": {"max_concurrency": 500, "max_latency_ms": 60_000},
    "litserve": {"batch_timeout": 0.008, "fast_queue": True, "num_api_servers": 1},
    "mosec": {"capacity": 500, "max_wait_time": 8},
    "torchserve": {"job_queue_size": 500, "maxBatchDelay": 8, "number_of_netty_threads": 2},
    "triton": {"max_queue_delay_microseconds": 8000, "preferred_batch_size": [4], "preserve_ordering": True},
}
OPTIONS["triton-grpc"] = OPTIONS["triton"]


@pytest.fixture(params=STARTED)
def server(request, installed):
    """Gives a declaration and what starts it."""
    return model_servers()[request.param], installed(request.param)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_answer_is_right_batches_are_made_and_nothing_stays(server, workers, tmp_path):
    declared, named = server
    predictor = echo(batch=4 if declared.batches else 1, batch_s=1e-3)
    rule = Serving(max_delay_ms=8.0, bound_ms=2000.0, workers=workers)  # a busy machine's queue is not hopeless soon
    if workers == 2:
        rule = rule._replace(options=OPTIONS.get(declared.name, {}))
    with Behind(Asked(predictor, SAMPLES), rule, named, str(tmp_path)).running() as behind:
        behind.capacity()
        found = behind.attempt(400.0, DUE)
        folder = Path(behind._told.memory).parent
    assert len(found.latency_s) == sum(found.batches) == found.compared == found.scheduled == 400
    assert (found.wrong, found.malformed, found.refused, found.timed_out, found.failed) == (0,) * 5
    assert (1 < max(found.batches) <= 4) if declared.batches else set(found.batches) == {1}
    if declared.delays and workers == 1:
        assert np.mean(found.batches) > 2
    assert running_in(folder) == []
    assert not folder.exists()


def test_a_worker_that_is_killed_under_load_loses_no_query_and_leaves_nothing(server, tmp_path):
    """A server starts another worker and answers again; LitServe ends, and that is named."""
    declared, named = server
    asked = Asked(echo(batch=4 if declared.batches else 1, batch_s=1e-3), SAMPLES)
    behind = Behind(asked, Serving(max_delay_ms=8.0, bound_ms=2000.0, workers=2), named, str(tmp_path))
    ends = raising(ServerEnded, "litserve") if declared.name == "litserve" else contextlib.nullcontext()
    killed, deadline = [], time.monotonic() + 120
    with ends, behind.running():
        folder = Path(behind._told.memory).parent
        killer = threading.Timer(0.3, lambda: killed.append(kill_a_worker(behind)))
        killer.start()
        counted(behind.attempt(400.0, DUE))
        killer.join()
        assert killed
        while not counted(behind.attempt(100.0, DUE[:100])) or declared.name == "litserve":
            assert time.monotonic() < deadline
    assert running_in(folder) == []
    assert not folder.exists()


def kill_a_worker(behind):
    """Kill a process of the server that has the predictor's memory, as its workers do."""
    processes = psutil.Process(behind._process.pid).children(recursive=True)
    workers = [each for each in processes if behind._told.memory in Path(f"/proc/{each.pid}/maps").read_text()]
    workers[-1].kill()
    return workers[-1].pid


def counted(found):
    """Return the number of answers, all of them right, once every query that was sent has an outcome."""
    answers = len(found.latency_s)
    assert answers + found.malformed + found.refused + found.timed_out + found.failed == len(found.lag_s)
    assert found.wrong == 0
    return answers


def test_every_option_is_tried():
    assert {name: set(model_servers()[name].options) for name in STARTED} == {
        name: set(OPTIONS.get(name, {})) for name in STARTED
    }


def test_an_option_reaches_its_server(installed, tmp_path):
    """A queue of one refuses the second of many queries."""
    asked, rule = Asked(echo(batch_s=0.05), SAMPLES), Serving(bound_ms=2000.0, options={"capacity": 1})
    with Behind(asked, rule, installed("mosec"), str(tmp_path)).running() as behind:
        found = behind.attempt(400.0, DUE[:40])
    assert found.refused
    assert found.refused + len(found.latency_s) == 40


def test_a_worker_that_takes_long_to_start_is_waited_for(installed, tmp_path):
    """KServe takes a worker that has not answered for 5 s for dead, and one imports for longer on a busy machine."""
    kserve = installed("kserve")
    slow = "import sys, time\nif '--multiprocessing-fork' in sys.orig_argv:\n    time.sleep(7)\n"
    (tmp_path / "bundle" / "sitecustomize.py").write_text(slow)
    with Behind(Asked(echo(batch=1), SAMPLES), Serving(workers=2), kserve, str(tmp_path)).running() as behind:
        assert behind._ready_s > 7
