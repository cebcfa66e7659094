"""The trainer on one rank: proof, seeds, what the loop needs."""

import numpy as np
import pytest

from adapters.cntk.comm import check_launcher
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from suite.worker.contract import SGD, Adam, Batch, Unavailable
from suite.worker.feed import synthetic
from tests.adapters.alike import Alike
from tests.support import proofs, trainers
from tests.support.networks import two_heads
from workloads import weights


@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize(("precision", "loss", "tensor"), [("float32", 2e-6, 1e-5), ("float64", 1e-12, 1e-6)])
@pytest.mark.parametrize(
    "optimiser",
    [SGD(0.01, 0.9, 0.05), SGD(0.01, 0.0, 0.0), Adam(0.003, 0.8, 0.95, 0.01, 0.05), Adam(0.001, 0.9, 0.999, 0.01, 0.0)],
    ids=str,
)
def test_it_is_proven(trainer, tmp_path, tuning, precision, loss, tensor, optimiser):
    graph, ours = two_heads(), trainer(tuning=tuning, precision=precision, batch=8, optimiser=optimiser)
    proof = proofs.prove(ours, graph, 8, proofs.write_oracle(graph, 8, tmp_path, optimiser))
    proofs.assert_proven(graph, proof, loss=loss, tensor=tensor)


@pytest.mark.parametrize(("tuning", "precision"), [("default", "float32"), ("tuned", "float64")])
def test_layers_are_timed_one_by_one(trainer, tuning, precision):
    ours = trainer(tuning=tuning, precision=precision, batch=8)
    rows = trainers.timed_layers(ours, two_heads())
    ready = [row.ready_s for row in rows if row.bytes]
    assert ready == sorted(ready, reverse=True)
    batch = ours.to_device(synthetic(two_heads(), 8, 1))
    trainers.staged(ours, batch)  # CNTK refuses a forward while a gradient is held


def test_every_kind_of_step_shares_one_velocity(trainer):
    graph = two_heads().without_dropout()
    found = []
    for ways in (("step", "step", "step"), ("step", "step_alone", "staged"), ("staged", "step", "step_alone")):
        ours = trainer(batch=8)
        ours.build(graph, dict(weights.initial(graph)))
        batch = ours.to_device(synthetic(graph, 8, 1))
        for way in ways:
            if way == "staged":
                trainers.staged(ours, batch)
            else:
                getattr(ours, way)(batch)
        found.append(ours.parameters())
    for other in found[1:]:
        for name, values in found[0].items():
            np.testing.assert_allclose(other[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


def test_labels_become_rows_with_a_one_and_images_the_networks_type(trainer):
    ours = trainer(precision="float64")
    ours.build(two_heads(), dict(weights.initial(two_heads())))
    placed = ours.to_device(Batch(np.zeros((2, 3, 12, 12), np.float32), np.array([4, 0])))
    np.testing.assert_array_equal(placed.labels.asarray(), np.eye(5)[[4, 0]])
    assert placed.images.asarray().dtype == np.float64


def test_it_reports_versions_and_notes(trainer):
    joined = trainer().start()
    assert (joined.rank, joined.world, joined.transport, joined.devices) == (0, 1, "none", 1)
    assert joined.versions["cntk"] == C.__version__
    assert "Math Kernel Library" in joined.versions["mkl"]
    assert trainer(tuning="tuned").notes()["relu"] != trainer(tuning="default").notes()["relu"]


@pytest.mark.parametrize(("engine", "fits"), [("", True), ("4.1.4", True), ("5.0.11", False)])
def test_the_launcher_of_another_open_mpi_is_refused(engine, fits):
    environ = {"OMPI_VERSION": engine} if engine else {}
    if fits:
        check_launcher("Open MPI v4.1.4", environ)
    else:
        with pytest.raises(Unavailable, match=r"Open MPI 5\.0\.11, .* v4\.1\.4, .* STAGEBENCH_MPIEXEC"):
            check_launcher("Open MPI v4.1.4", environ)


class TestAlike(Alike):
    counting = ("default", "tuned")
    words = "memory"
    test_a_missing_device_is_named = None  # it declares none
