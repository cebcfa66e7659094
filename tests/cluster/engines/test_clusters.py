"""Real ranks under a real Spark and a real Ray: they meet, they fail, they are ended, nothing stays behind."""

import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.engine_messages import Begun
from stagebench.suite.worker.messages import Hello, Joined, of_type
from tests.cluster.engines import clusters
from tests.support.started import DEATHS, controller_of, running_in, wait_until

HERE = Path(sys.executable)
TWO = Placement(nodes=2)
STUCK = {"pace": 1000.0}  # its first step takes for ever


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path):
    yield
    wait_until(lambda: running_in(tmp_path / "attempt") == [])


def test_ranks_on_two_nodes_meet_and_get_their_variables(launcher, job, launched):
    words = "a  b 'c' $d \\ \n e"
    request = job(Placement(nodes=2, ranks_per_node=2), HERE, strategy="meets", environ={"TINY_WORDS": words})
    result = launched(launcher, request)
    assert (result.outcome, result.reason) == ("ok", "")
    for rank in range(4):
        hello, joined = (of_type(kind, result.messages[rank])[0] for kind in (Hello, Joined))
        assert (hello.rank, hello.world, joined.world) == (rank, 4, 4)
        assert joined.versions["TINY_WORDS"] == words
        assert joined.versions["OMP_NUM_THREADS"] == "1"
    assert [type(message) for message in result.evidence["engine"]] == [Begun]


@DEATHS
def test_a_rank_that_dies_is_told(launcher, job, launched, knobs, reason):
    result = launched(launcher, job(TWO, HERE, strategy="meets", knobs=knobs))
    assert result.outcome == "crash"
    assert result.reason.startswith(reason)


def test_a_frozen_rank_is_a_timeout_and_nothing_is_left(launcher, job, launched):
    result = launched(launcher, job(TWO, HERE, strategy="meets", knobs={"dies": 1, "signal": "SIGSTOP"}), silence=5)
    assert result.outcome == "timeout"
    assert "sent no message for 5 s (silence limit) in native" in result.reason


@pytest.mark.parametrize("sidecar", [None, "print('no free port'); raise SystemExit(3)"], ids=["runs", "fails"])
def test_a_sidecar_runs_on_the_first_node_and_is_named_when_it_fails(launcher, job, launched, sidecar):
    request = job(TWO, HERE, strategy="alone", knobs=STUCK if sidecar else None)
    text = sidecar or "import os, time; print(os.environ['MASTER_ADDR'], flush=True); time.sleep(600)"
    result = launched(launcher, replace(request, sidecars=((str(HERE), "-c", text),)))
    if sidecar:
        assert (result.outcome, "SystemExit(3) ended with exit code 3" in result.reason) == ("crash", True)
    else:
        assert (result.outcome, result.reason) == ("ok", "")
        assert re.fullmatch(r"[\d.]+\n", (request.folder / "launcher-1.log").read_text())


@pytest.mark.parametrize("end", [psutil.Process.kill, psutil.Process.terminate], ids=["killed", "terminated"])
def test_nothing_outlives_the_controller(launcher, job, end):
    request = job(TWO, HERE, strategy="alone", knobs=STUCK)
    (process,) = launcher.processes(request)
    controller = controller_of(process, 2, request.folder)
    begun = [request.folder / f"rank-{rank}.jsonl" for rank in (0, 1)]
    try:
        wait_until(lambda: all(path.exists() and '"native"' in path.read_text() for path in begun), clusters.READY)
    finally:
        end(psutil.Process(controller.pid))
    controller.wait(30)
    wait_until(lambda: running_in(request.folder) == [])


def test_more_nodes_than_there_are_end_the_wait_with_a_remedy(launcher, engine, job, launched, monkeypatch):
    monkeypatch.setenv("STAGEBENCH_SPARK_WAIT", "3")
    three = Placement(nodes=3, threads=2)
    if engine == "ray":
        said = launcher.missing(three, HERE)
        assert "nodes = 3, ranks = 1 want 3 of the Ray cluster's nodes, each with 2 CPUs" in said
        return
    result = launched(launcher, job(three, HERE, strategy="alone"), silence=1)
    assert result.outcome == "timeout"
    there = r"it has (none|127\.0\.0\.1(, 127\.0\.0\.1)?)"  # so far
    said = rf"Spark had no 3 executors of 2 cores within 3 s \({there}\); ask for less, start workers on more hosts"
    assert re.search(said, result.reason), result.reason


OTHER = """
import ray, time
ray.init()
ray.util.placement_group([{"CPU": 2}]).wait(60)
print("there", flush=True)
time.sleep(600)
"""


def test_a_ray_that_others_use_is_waited_for_and_no_limit_counts(launcher, engine, job, launched, monkeypatch):
    if engine == "spark":
        pytest.skip("its applications wait for executors: the test above")
    monkeypatch.setenv("STAGEBENCH_RAY_WAIT", "4")
    request = job(Placement(nodes=2, threads=2), HERE, strategy="alone")
    with subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"there\n"
        result = launched(launcher, request, silence=1)
        other.kill()
    assert result.outcome == "timeout"
    there = socket.gethostname() + r" \([\d.]+\)"
    said = rf"Ray had no 2 nodes with 2 CPUs and 0 GPUs free within 4 s \(it has {there}, {there}\); ask for less, wait"
    assert re.search(said, result.reason), result.reason


def test_hosts_that_are_named_are_taken_or_refused(launcher, engine, job, launched):
    own = Placement(hosts=(socket.gethostname(),))
    assert launched(launcher, job(own, HERE, strategy="alone")).outcome == "ok"
    away = Placement(hosts=("elsewhere",))
    if engine == "ray":
        assert "the Ray cluster has no node 'elsewhere'" in launcher.missing(away, HERE)
        return
    result = launched(launcher, job(away, HERE, strategy="alone"))
    assert result.outcome == "crash"
    assert result.reason.startswith("Spark took the hosts ")
    assert "but not elsewhere, which `hosts` names: start a worker there (sbin/start-worker.sh)" in result.reason
