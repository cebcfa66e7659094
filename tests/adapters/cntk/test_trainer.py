"""The trainer on one rank: proof, seeds, what the loop needs."""

import numpy as np
import pytest

from adapters.cntk.comm import check_launcher
from suite.worker.contract import Batch, Unavailable
from suite.worker.feed import synthetic
from tests.adapters.alike import Alike
from tests.support import trainers
from tests.support.networks import two_heads
from workloads import weights


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


def test_it_tells_its_library_and_how_it_rectifies(trainer):
    assert "Math Kernel Library" in trainer().start().versions["mkl"]
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
    module, words = "cntk", "memory"
    test_a_missing_device_is_named = None  # it declares none
