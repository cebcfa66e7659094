"""A real coordinator with its workers and servers: alone it is proven, several shares are one batch, and it learns."""

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
from suite.worker.contract import SGD, Adam, Setup
from suite.worker.feed import synthetic
from workloads import weights
from workloads.catalogue import by_name

ROOT = Path(__file__).parents[3]
SERVER = ROOT / "adapters" / "tensorflow" / "server.py"
RANK = Path(__file__).with_name("coordinated_rank.py")
# As in coordinated_rank.py.
PROVEN, PLAIN = Adam(1e-3, 0.9, 0.999, 1e-7, 1e-4), SGD(0.05, 0.0, 0.0)
UPDATES, STEPS = 3, 30


def run(folder, task, workers, servers):
    """What the rank found; the others run on until they are ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    variables = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    variables.update(TF_CPP_MIN_LOG_LEVEL="1", PYTHONWARNINGS="error")
    beside = [
        subprocess.Popen([sys.executable, str(SERVER), job, *map(str, (number, 1, workers, servers, 1))], env=variables)
        for job, count in (("worker", workers), ("ps", servers))
        for number in range(count)
    ]
    tokens = [sys.executable, str(RANK), str(folder), task, str(workers), json.dumps({"servers": servers})]
    try:
        subprocess.run(tokens, env=variables, check=True, timeout=300)
        assert [each.poll() for each in beside] == [None] * len(beside)
    finally:
        for process in beside:
            process.kill()
            process.wait()
    return json.loads((folder / "found.json").read_text())


def reference(samples, optimiser):
    """The oracle's trainer, started."""
    trainer = ReferenceTrainer(Setup(0, 1, 0, "single", "cpu", 1, samples, "float64", "default", {}, optimiser, 1, 0))
    trainer.start()
    return trainer


def test_with_one_worker_and_two_servers_that_do_adam_it_is_proven(tmp_path):
    workload = by_name()["mnist_small"]
    graph, samples = workload.graph(), workload.proof_batch
    (tmp_path / "oracle").mkdir()
    evidence.write_oracle(reference(samples, PROVEN), graph, samples, str(tmp_path / "oracle"))
    proof = run(tmp_path, "proven", 1, 2)
    assert proof["joined"] == [0, 1, "grpc", 1]
    for kind in ("logits", "gradient", "staged parameter", "native parameter"):
        assert max(proof["errors"][kind].values()) < 1e-5, (kind, proof["errors"][kind])
    for way in ("staged", "native"):
        np.testing.assert_allclose(proof["losses"][way], proof["losses"]["oracle"], rtol=2e-6)
    assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)
    assert proof["notes"]["optimiser"].startswith("ResourceApplyAdam on the servers")
    assert "staleness" not in proof["notes"], "it is a training's"


def test_shares_computed_on_the_same_weights_move_them_as_the_joined_batch_does(tmp_path):
    found = run(tmp_path, "staged", 2, 2)
    workload = by_name()["mnist_small"]
    graph, samples = workload.graph(), 2 * workload.proof_batch
    oracle = reference(samples, PLAIN)
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
    ours = np.load(tmp_path / "gradients.npz")
    assert max(evidence.distance(ours[name], each) for name, each in gradients.items()) < 1e-10
    theirs, ours = oracle.parameters(), np.load(tmp_path / "parameters.npz")
    assert set(ours) == set(theirs)
    assert max(evidence.distance(ours[name], theirs[name]) for name in theirs) < 1e-12


def test_workers_beside_each_other_learn_and_tell_how_stale_their_weights_were(tmp_path):
    found = run(tmp_path, "learning", 2, 1)
    assert found["joined"] == [0, 1, "grpc", 2]
    assert found["quiet"], "only a training's staleness is noted"
    assert found["losses"][-1] < 0.9 * found["first"]
    stale = found["stale"]
    assert stale["steps"] == 2 * STEPS, "every share is an update"
    # A step waits for both: at most the other's update comes between, and now and then it must.
    assert stale["max"] == 1
    assert 0 < stale["mean"] <= 1
    one, other = found["masked"][:2], found["masked"][2:]
    assert one == other, "masks come again in a network made anew"
    assert len({loss for step in one for loss in step}) == 4, "every share of every step has masks of its own"
    assert not found["left"], "a coordinator that is closed ends its threads"
