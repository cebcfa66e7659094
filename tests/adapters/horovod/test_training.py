"""Real groups of ranks over gloo and MPI: proven, and exchanging when they should."""

from functools import partial

import pytest

from stagebench.suite.worker.contract import SGD, Adam
from stagebench.workloads.networks import by_name
from tests.support import processes, proofs

RULES = {"sgd": SGD(0.001, 0.9, 0.0), "adam": Adam(1e-3, 0.9, 0.999, 1e-7, 1e-3)}


@pytest.mark.parametrize(
    ("world", "mpi", "tuning", "optimiser", "knobs"),
    [
        (2, False, "tuned", "adam", {"fusion_threshold_mb": 0, "cycle_time_ms": 0.5}),
        (4, False, "tuned", "sgd", {"fusion_threshold_mb": 0.25}),
        (2, True, "default", "adam", {}),
        (2, True, "tuned", "sgd", {"controller": "gloo"}),
    ],
)
def test_it_is_proven(run_group, tmp_path, world, mpi, tuning, optimiser, knobs):
    workload = by_name()["mnist_small"]
    graph = workload.graph()
    proofs.write_oracle(graph, world * workload.proof_batch, tmp_path / "oracle", RULES[optimiser])
    found = run_group("prove", tmp_path, world, mpi, optimiser=RULES[optimiser], tuning=tuning, **knobs)
    for rank, each in enumerate(found):
        assert each["joined"][:3] == [rank, world, 1]
        assert each["joined"][3].startswith("mpi: Open MPI v" if mpi and not knobs.get("controller") else "gloo")
    proofs.assert_proven(graph, *found)


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_it_averages_and_a_lone_step_does_not(run_group, tmp_path, tuning):
    found = run_group("exchange", tmp_path, tuning=tuning, fusion_threshold_mb=1, cycle_time_ms=2)
    assert [each["maximum"] for each in found] == [1.0, 1.0]
    assert found[0]["notes"]["horovod"] == {"controller": "gloo", "fusion_threshold_mb": 1, "cycle_time_ms": 2}
    proofs.assert_exchanged(partial(processes.saved_by, tmp_path), rtol=1e-6, atol=1e-9)
