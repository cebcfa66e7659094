"""DDP on two real ranks over gloo."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adapters.reference.worker import ReferenceTrainer
from suite.worker import evidence
from suite.worker.trainer import SGD, Setup
from workloads.catalogue import by_name

ROOT = Path(__file__).parents[3]


def run_ranks(task, folder, **options):
    """What each of two ranks found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, STAGEBENCH_WORLD="2")
    tokens = [sys.executable, "-W", "error", str(Path(__file__).with_name("rank.py"))]
    ranks = [
        subprocess.Popen([*tokens, task, folder, json.dumps(options)], env=dict(common, STAGEBENCH_RANK=str(rank)))
        for rank in range(2)
    ]
    try:
        assert [rank.wait(timeout=60) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(2)]


def close(proof):
    """The gate's judgement: gradients, parameters and logits to 1e-5."""
    kinds = ("logits", "gradient", "staged parameter", "native parameter")
    return {kind: max(proof["errors"][kind].values()) for kind in kinds}


@pytest.mark.parametrize("options", [{"tuning": "default"}, {"static_graph": True, "bucket_cap_mb": 1}])
def test_ddp_is_proven(tmp_path, options):
    workload = by_name()["mnist_small"]
    graph, samples = workload.graph(), 2 * workload.proof_batch
    setup = Setup(0, 1, 0, "single", "cpu", 1, samples, "float64", "default", {"shards": 2}, SGD(0.001, 0.9, 0.0), 1, 0)
    oracle = ReferenceTrainer(setup)
    oracle.start()
    (tmp_path / "oracle").mkdir()
    evidence.write_oracle(oracle, graph, samples, str(tmp_path / "oracle"))
    proofs = run_ranks("prove", tmp_path, **options)
    for rank, proof in enumerate(proofs):
        assert proof["joined"] == [rank, 2, "gloo"]
        assert max(close(proof).values()) < 1e-5, close(proof)
        assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)
    for way in ("staged", "native"):
        joint = np.mean([proof["losses"][way] for proof in proofs], axis=0)
        np.testing.assert_allclose(joint, proofs[0]["losses"]["oracle"], rtol=2e-6)


def test_the_exchange_averages_and_a_lone_step_does_not(tmp_path):
    found = run_ranks("exchange", tmp_path)
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    # A thread of gloo's that outlives the group may abort the process while it ends.
    assert not [name for each in found for name in each["threads_left"] if "gloo" in name or "tcpstore" in name]
    assert found[0]["notes"]["ddp"]["gradient_as_bucket_view"] is True

    def saved(name):
        return [np.load(tmp_path / f"{name}-{rank}.npz") for rank in range(2)]

    local, shared, first, alone, second = map(saved, ("local", "shared", "step0", "step1", "step2"))
    for name in local[0].files:
        assert not np.array_equal(local[0][name], local[1][name])
        for rank in range(2):  # also after a second call: it averages the same gradients again
            np.testing.assert_array_equal(shared[rank][name], local[0][name] / 2 + local[1][name] / 2)
        np.testing.assert_array_equal(first[0][name], first[1][name])
        assert not np.array_equal(alone[0][name], alone[1][name])
        moved = [second[rank][name] - alone[rank][name] for rank in range(2)]
        assert all(np.abs(each).max() > 0 for each in moved)


@pytest.mark.parametrize(("asked", "count"), [("auto", 2), (25, 1), (1, 2)])
def test_the_staged_exchange_has_the_buckets_of_ddp(tmp_path, asked, count):
    for found in run_ranks("exchange", tmp_path, tuning="default", bucket_cap_mb=asked):
        assert found["buckets"]["ours"] == found["buckets"]["ddp"]
        assert len(found["buckets"]["ours"]) == count
