"""Real workers and parameter servers: one worker is proven, two tell how stale their weights were."""

import sys
from pathlib import Path

import numpy as np
import pytest

from stagebench.adapters.tensorflow.strategies.parameter_server import server_of_each
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.workloads.networks import by_name
from tests.support import processes, proofs

SERVER = Path(processes.ROOT, "adapters", "tensorflow", "server.py")
RANK = Path(__file__).with_name("parameter_server_rank.py")
STALE = 5  # as in parameter_server_rank.py


def run_group(task, folder, workers, servers, optimiser):
    """What each worker found; the servers run on until they are ended."""
    common = processes.variables(TF_CPP_MIN_LOG_LEVEL="1")
    beside = [
        ([sys.executable, SERVER, "ps", *map(str, (number, 0, workers, servers, 1))], common)
        for number in range(servers)
    ]
    tokens = processes.rank_tokens(RANK, task, folder, servers=servers, optimiser=optimiser)
    processes.run_together(processes.ranks(tokens, workers, common), beside)
    return processes.found_by(folder, workers)


def test_one_worker_is_proven_with_two_servers_that_do_adam(tmp_path):
    workload, rule = by_name()["mnist_small"], Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
    proofs.write_oracle(workload.graph(), workload.proof_batch, tmp_path / "oracle", rule)
    (proof,) = run_group("prove", tmp_path, 1, 2, rule)
    assert proof["joined"] == [0, 1, 1, "grpc"]
    proofs.assert_proven(workload.graph(), proof)
    assert proof["notes"]["optimiser"] == (
        "ResourceApplyAdam on the servers, with locks; gradients are divided by the global batch"
    )
    assert "staleness" not in proof["notes"], "it is a training's"


def test_two_workers_train_the_same_weights_and_know_how_stale_they_were(tmp_path):
    found = run_group("train", tmp_path, 2, 1, SGD(0.001, 0.9, 0.0))
    assert [each["joined"] for each in found] == [[rank, 2, 1, "grpc"] for rank in range(2)]
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    # One worker's mean, as its share of the global batch's, times the learning rate.
    assert found[0]["push"] == pytest.approx(-0.001 / 2, rel=1e-3)
    updates = 2 * 1 + STALE + 1 + 2 * 10  # staged, then native ones
    assert max(each["joint"] for each in found) == updates // 2, "an epoch ends when all have seen its samples together"
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
    assert server_of_each([10, 1, 1, 8], 2) == [0, 1, 1, 1]
    assert server_of_each([3, 5], 1) == [0, 0]
    assert server_of_each([4], 3) == [0]
