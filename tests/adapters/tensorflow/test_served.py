"""Real workers and parameter servers: one worker is proven, two tell how stale their weights were."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adapters.reference.worker import ReferenceTrainer
from adapters.tensorflow.store import spread
from suite.worker import evidence
from suite.worker.contract import Adam, Setup
from workloads.catalogue import by_name

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "adapters" / "tensorflow" / "server.py"
RANK = Path(__file__).with_name("served_rank.py")
STALE = 5  # as in served_rank.py


def run_group(folder, workers, servers):
    """What each worker found; the servers run on until they are ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    common.update(STAGEBENCH_WORLD=str(workers), TF_CPP_MIN_LOG_LEVEL="1")
    beside = [
        subprocess.Popen([sys.executable, str(SERVER), "ps", *map(str, (number, 0, workers, servers, 1))], env=common)
        for number in range(servers)
    ]
    knobs = json.dumps({"servers": servers})
    ranks = [
        subprocess.Popen([sys.executable, str(RANK), str(folder), knobs], env=dict(common, STAGEBENCH_RANK=str(rank)))
        for rank in range(workers)
    ]
    try:
        assert [rank.wait(timeout=300) for rank in ranks] == [0] * workers
        assert [server.poll() for server in beside] == [None] * servers
    finally:
        for process in [*ranks, *beside]:
            process.kill()
            process.wait()
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(workers)]


def test_one_worker_is_proven_with_two_servers_that_do_adam(tmp_path):
    workload = by_name()["mnist_small"]
    graph, rule = workload.graph(), Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
    setup = Setup(0, 1, 0, "single", "cpu", 1, workload.proof_batch, "float64", "default", {}, rule, 1, 0)
    oracle = ReferenceTrainer(setup)
    oracle.start()
    (tmp_path / "oracle").mkdir()
    evidence.write_oracle(oracle, graph, workload.proof_batch, str(tmp_path / "oracle"))
    (proof,) = run_group(tmp_path, 1, 2)
    assert proof["joined"] == [0, 1, "grpc"]
    for kind in ("logits", "gradient", "staged parameter", "native parameter"):
        assert max(proof["errors"][kind].values()) < 1e-5, (kind, proof["errors"][kind])
    for way in ("staged", "native"):
        np.testing.assert_allclose(proof["losses"][way], proof["losses"]["oracle"], rtol=2e-6)
    assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)
    assert proof["notes"]["optimiser"] == (
        "ResourceApplyAdam on the servers, with locks; gradients are divided by the global batch"
    )
    assert "staleness" not in proof["notes"], "it is a training's"


def test_two_workers_train_the_same_weights_and_know_how_stale_they_were(tmp_path):
    found = run_group(tmp_path, 2, 1)
    assert [each["joined"] for each in found] == [[rank, 2, "grpc"] for rank in range(2)]
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    # One worker's mean, as its share of the global batch's, times the learning rate.
    assert found[0]["push"] == pytest.approx(-0.001 / 2, rel=1e-3)
    assert found[0]["first"] == found[1]["first"], "both see what both have pushed"
    assert all(each["kept"] and each["alone"] > 0 and np.isfinite(each["loss"]) for each in found)
    assert [each["current"] for each in found] == [False, True], "the last to exchange holds what the servers hold"
    # Worker 0 takes STALE steps undisturbed while worker 1 waits: the next of worker 1 is STALE updates late.
    assert found[1]["staleness"]["max"] >= STALE
    assert found[1]["staleness"]["steps"] == 1 + 10
    assert found[0]["staleness"]["steps"] == STALE + 10
    for each, others in zip(found, (1 + 10, STALE + 10), strict=True):
        assert 0 < each["staleness"]["mean"] * each["staleness"]["steps"] <= others + 1


def test_weights_are_spread_by_their_size():
    assert spread([10, 1, 1, 8], 2) == [0, 1, 1, 1]
    assert spread([3, 5], 1) == [0, 0]
    assert spread([4], 3) == [0]
