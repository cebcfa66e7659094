"""Two real devices: of one process under MirroredStrategy, of two processes under MultiWorkerMirroredStrategy."""

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
from workloads.catalogue import by_name

WORKLOAD = by_name()["mnist_small"]
ROOT = Path(__file__).parents[3]
RING = "ring over grpc"
MEMORY = {"auto": "memory: reduction to one device", "hierarchical": "memory: hierarchical copies"}


def run_ranks(folder, world, **options):
    """What each rank found; two devices in all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    options["devices"] = 2 // world
    common = dict(os.environ, PYTHONPATH=str(ROOT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    common.update(STAGEBENCH_WORLD=str(world), TF_CPP_MIN_LOG_LEVEL="1")
    tokens = [sys.executable, str(Path(__file__).with_name("rank.py"))]
    ranks = [
        subprocess.Popen([*tokens, folder, json.dumps(options)], env=dict(common, STAGEBENCH_RANK=str(rank)))
        for rank in range(world)
    ]
    try:
        assert [rank.wait(timeout=120) for rank in ranks] == [0] * world
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(
    scope="module",
    params=[
        {"strategy": "mirrored", "tuning": "default", "optimiser": ["SGD", 0.001, 0.9, 0.0]},
        {
            "strategy": "mirrored",
            "tuning": "tuned",
            "optimiser": ["SGD", 0.001, 0.9, 0.0],
            "cross_device": "hierarchical",
        },
        {
            "strategy": "multiworker_mirrored",
            "tuning": "tuned",
            "optimiser": ["Adam", 1e-3, 0.9, 0.999, 1e-7, 1e-4],
            "pack_mb": 1,
            "collective": "ring",
        },
    ],
    ids=lambda options: "-".join([options["strategy"], options.get("cross_device", "auto")]),
)
def spread(request, tmp_path_factory):
    """(folder, what each rank found, the transport that is expected) of one group of each kind."""
    folder = tmp_path_factory.mktemp("spread")
    samples = 2 * WORKLOAD.proof_batch
    kind, *values = request.param["optimiser"]
    optimiser = {"SGD": SGD, "Adam": Adam}[kind](*values)
    oracle = ReferenceTrainer(Setup(0, 1, 0, "single", "cpu", 1, samples, "float64", "default", {}, optimiser, 1, 0))
    oracle.start()
    (folder / "oracle").mkdir()
    evidence.write_oracle(oracle, WORKLOAD.graph(), samples, str(folder / "oracle"))
    world = 1 if request.param["strategy"] == "mirrored" else 2
    transport = MEMORY[request.param.get("cross_device", "auto")] if world == 1 else RING
    return folder, run_ranks(folder, world, **request.param), transport


def test_it_is_proven(spread):
    _, proofs, transport = spread
    graph = WORKLOAD.graph()
    world = len(proofs)
    for rank, proof in enumerate(proofs):
        assert proof["joined"] == [rank, world, 2 // world, transport]
        assert proof["maximum"] == world - 1
        assert proof["devices"] == [[f"CPU:{index}"] for index in range(2 // world)]
        for kind in ("logits", "gradient", "staged parameter", "native parameter"):
            assert max(proof["errors"][kind].values()) < 1e-5, (kind, proof["errors"][kind])
        assert (proof["macs"], proof["parameter_count"]) == (graph.macs, graph.parameter_count)
    for way in ("staged", "native"):
        joint = np.mean([proof["losses"][way] for proof in proofs], axis=0)
        np.testing.assert_allclose(joint, proofs[0]["losses"]["oracle"], rtol=2e-6)


def test_the_exchange_averages_and_a_lone_step_does_not(spread):
    def saved(name):
        return [np.load(spread[0] / f"{name}-{device}.npz") for device in range(2)]

    local, shared, first, alone, second = map(saved, ("local", "shared", "step0", "step1", "step2"))
    for name in local[0].files:
        assert not np.array_equal(local[0][name], local[1][name])
        for device in range(2):  # also after a second call: it averages the same gradients again
            np.testing.assert_allclose(shared[device][name], local[0][name] / 2 + local[1][name] / 2, atol=1e-7)
        np.testing.assert_array_equal(first[0][name], first[1][name])
        assert not np.array_equal(alone[0][name], alone[1][name])
        moved = [second[device][name] - alone[device][name] for device in range(2)]
        assert all(np.abs(each).max() > 0 for each in moved)
