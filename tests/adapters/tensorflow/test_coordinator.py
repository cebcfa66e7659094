"""A real coordinator with its workers and servers: alone it is proven, several shares are one batch, and it learns."""

import sys
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.worker import evidence
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import processes, proofs

SERVER = Path(processes.ROOT, "adapters", "tensorflow", "server.py")
RANK = Path(__file__).with_name("coordinator_rank.py")
WORKLOAD = by_name()["mnist_small"]
UPDATES, STEPS = 3, 30  # as in coordinator_rank.py


def run(folder, task, workers, servers, optimiser, **options):
    """What the rank found; the others run on until they are ended."""
    variables = processes.variables(TF_CPP_MIN_LOG_LEVEL="1", PYTHONWARNINGS="error")
    beside = [
        ([sys.executable, SERVER, job, *map(str, (number, 1, workers, servers, 1))], variables)
        for job, count in (("worker", workers), ("ps", servers))
        for number in range(count)
    ]
    options.update(devices=workers, servers=servers, optimiser=optimiser, tuning="tuned")
    processes.run_together([(processes.rank_tokens(RANK, task, folder, **options), variables)], beside)
    (found,) = processes.found_by(folder, 1)
    assert found["joined"] == [0, 1, workers, "grpc"]
    return found


def test_with_one_worker_and_two_servers_that_do_adam_it_is_proven(tmp_path):
    rule = Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4)
    proofs.write_oracle(WORKLOAD.graph(), WORKLOAD.proof_batch, tmp_path / "oracle", rule)
    proof = run(tmp_path, "prove", 1, 2, rule)
    proofs.assert_proven(WORKLOAD.graph(), proof)
    assert proof["notes"]["optimiser"].startswith("ResourceApplyAdam on the servers")
    assert "staleness" not in proof["notes"], "it is a training's"


def test_shares_computed_on_the_same_weights_move_them_as_the_joined_batch_does(tmp_path):
    rule = SGD(0.05, 0.0, 0.0)  # without momentum shares' updates can be added in any order
    found = run(tmp_path, "stages", 2, 2, rule, precision="float64")
    graph, samples = WORKLOAD.graph(), 2 * WORKLOAD.proof_batch
    oracle = proofs.reference(batch=samples, optimiser=rule)
    oracle.build(graph, dict(weights.initial(graph)))
    batch = oracle.to_device(synthetic(graph, samples, 1))
    for update in range(UPDATES):
        oracle.forward(batch)
        assert found["losses"][update] == pytest.approx(oracle.loss(), rel=1e-12)
        oracle.backward()
        gradients = oracle.gradients()
        oracle.update()
    np.testing.assert_allclose(found["logits"], oracle.logits(), rtol=1e-5, atol=1e-7)
    assert found["predicted"] == [samples, graph.classes]
    (ours,) = processes.saved_by(tmp_path, "gradients", 1)
    assert max(evidence.distance(ours[name], each) for name, each in gradients.items()) < 1e-10
    theirs, (ours,) = oracle.parameters(), processes.saved_by(tmp_path, "parameters", 1)
    assert set(ours) == set(theirs)
    assert max(evidence.distance(ours[name], theirs[name]) for name in theirs) < 1e-12


def test_workers_beside_each_other_learn_and_tell_how_stale_their_weights_were(tmp_path):
    found = run(tmp_path, "learn", 2, 1, SGD(0.01, 0.9, 0.0))
    assert found["quiet"], "only a training's staleness is noted"
    assert found["losses"][-1] < 0.9 * found["first"]
    stale = found["stale"]
    assert stale["steps"] == 2 * STEPS, "every share is an update"
    # A step waits for both: at most the other's update comes between, and now and then it must.
    assert stale["max"] == 1
    assert 0 < stale["mean"] <= 1
    assert found["flying"] == [4, 0], "no step waits for the one before it, but for the fourth before it"
    one, other = found["masked"][:2], found["masked"][2:]
    assert one == other, "masks come again in a network made anew"
    assert len({loss for step in one for loss in step}) == 4, "every share of every step has masks of its own"
    assert not found["left"], "a coordinator that is closed ends its threads"
