"""Real groups of ranks over gloo and MPI: proven, and exchanging when they should."""

import numpy as np
import pytest

from adapters.reference.worker import ReferenceTrainer
from suite.worker import evidence
from suite.worker.contract import SGD, Adam, Setup
from workloads.catalogue import by_name

RULES = {"sgd": SGD(0.001, 0.9, 0.0), "adam": Adam(1e-3, 0.9, 0.999, 1e-7, 1e-3)}


def oracle(workload, samples, folder, optimiser):
    setup = Setup(0, 1, 0, "single", "cpu", 1, samples, "float64", "default", {}, RULES[optimiser], 1, 0)
    trainer = ReferenceTrainer(setup)
    trainer.start()
    (folder / "oracle").mkdir()
    evidence.write_oracle(trainer, workload.graph(), samples, str(folder / "oracle"))


@pytest.mark.parametrize(
    ("world", "mpi", "tuning", "optimiser", "knobs"),
    [
        (2, False, "default", "sgd", {}),
        (2, False, "tuned", "adam", {"fusion_threshold_mb": 0, "cycle_time_ms": 0.5}),
        (4, False, "tuned", "sgd", {"fusion_threshold_mb": 0.25}),
        (2, True, "default", "adam", {}),
        (2, True, "tuned", "sgd", {"cycle_time_ms": 5}),
        (2, True, "tuned", "sgd", {"controller": "gloo"}),
        (1, False, "default", "sgd", {}),
        (1, False, "tuned", "sgd", {}),
    ],
)
def test_it_is_proven(run_group, tmp_path, world, mpi, tuning, optimiser, knobs):
    workload = by_name()["mnist_small"]
    graph = workload.graph()
    oracle(workload, world * workload.proof_batch, tmp_path, optimiser)
    proofs = run_group("prove", tmp_path, world, mpi, RULES[optimiser], tuning=tuning, **knobs)
    for rank, proof in enumerate(proofs):
        assert proof["joined"][:3] == [rank, world, 1]
        assert proof["joined"][3].startswith("mpi: Open MPI v" if mpi and not knobs.get("controller") else "gloo")
        for kind in ("logits", "gradient", "staged parameter", "native parameter"):
            assert max(proof["errors"][kind].values()) < 1e-5, kind
    for way in ("staged", "native"):
        joint = np.mean([proof["losses"][way] for proof in proofs], axis=0)
        np.testing.assert_allclose(joint, proofs[0]["losses"]["oracle"], rtol=2e-6)
    assert proofs[0]["macs"] == graph.macs


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_it_averages_and_a_lone_step_does_not(run_group, tmp_path, tuning):
    found = run_group("exchange", tmp_path, tuning=tuning, fusion_threshold_mb=1, cycle_time_ms=2)
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    assert found[0]["notes"]["horovod"] == {"controller": "gloo", "fusion_threshold_mb": 1, "cycle_time_ms": 2}
    local, shared, staged, first, second, alone = saved(
        tmp_path, "local", "shared", "staged", "step0", "step1", "step2"
    )
    for name in local[0].files:
        assert not np.array_equal(local[0][name], local[1][name])
        average = local[0][name] / 2 + local[1][name] / 2
        for rank in range(2):  # also after a second call
            np.testing.assert_allclose(shared[rank][name], average, rtol=1e-6, atol=1e-9)
        for ranks in (staged, first, second):
            np.testing.assert_array_equal(ranks[0][name], ranks[1][name])
        assert not np.array_equal(first[0][name], second[0][name])
        assert not np.array_equal(alone[0][name], alone[1][name])


def saved(folder, *names):
    return [[np.load(folder / f"{name}-{rank}.npz") for rank in range(2)] for name in names]
