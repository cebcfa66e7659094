"""The trainer on one rank, and CNTK's learners against the rules written out in NumPy."""

import numpy as np
import pytest

from stagebench.adapters.cntk.comm import check_launcher
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.adapters.cntk.optimisers import adam, adam_of_operations, momentum_at_any_rate
from stagebench.suite.worker.behaviour import spread
from stagebench.suite.worker.contract import SGD, Adam, Batch, Unavailable, Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks.gpt import gpt_char
from tests.adapters.alike import Alike
from tests.support import trainers
from tests.support.errors import raising
from tests.support.networks import text, two_heads
from tests.support.proofs import updated_by_hand


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


def test_one_thread_works_and_no_other_waits_on_a_core(trainer):
    ours = trainer(batch=8)
    ours.build(gpt_char(), dict(weights.initial(gpt_char())))
    batch = ours.to_device(synthetic(gpt_char(), 8, 1))
    shared = spread(lambda: ours.step(batch))
    if shared is None:
        pytest.skip("this system does not count threads' nanoseconds")
    assert shared < 1.1


def test_labels_become_rows_with_a_one_and_images_the_networks_type(trainer):
    ours = trainer(precision="float64")
    ours.build(two_heads(), dict(weights.initial(two_heads())))
    placed = ours.to_device(Batch(np.zeros((2, 3, 12, 12), np.float32), np.array([4, 0])))
    np.testing.assert_array_equal(placed.labels.asarray(), np.eye(5)[[4, 0]])
    assert placed.inputs.asarray().dtype == np.float64


def test_a_label_of_every_token_becomes_a_row_of_its_own(trainer):
    ours = trainer(batch=2)
    ours.build(text(), dict(weights.initial(text())))
    samples = synthetic(text(), 2, 1)
    placed = ours.to_device(samples)
    np.testing.assert_array_equal(placed.inputs.asarray(), samples.inputs)
    np.testing.assert_array_equal(placed.labels.asarray(), np.eye(9)[samples.labels])


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_layers_that_share_a_weight_are_timed_one_by_one(trainer, tuning):
    ours = trainer(batch=8, tuning=tuning)
    trainers.timed_layers(ours, text())
    trainers.staged(ours, ours.to_device(synthetic(text(), 8, 1)))


def test_more_tokens_than_its_inputs_tell_apart_are_refused(trainer):
    graph = Graph("large", (2,), 3)
    x = graph.add("table", "embedding", ("input",), vocabulary=2**24 + 1, out=1)
    graph.add_head(graph.add("out", "dense", (x,), out=3))
    with raising(Unsupported, "table", "16777217", "16777216"):
        trainer().build(graph, {})


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


RULE = Adam(0.003, 0.8, 0.95, 1e-2, 0.05)
UPDATES = 4
CLOSE = {"float32": 2e-6, "float64": 1e-12}


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_learner_follows_the_rule_for_sums_over_any_number_of_samples(precision, decay):
    rule, stream = RULE._replace(weight_decay=decay), np.random.RandomState(1)
    begin = stream.standard_normal((3, 5)).astype(precision)
    parameter = C.Parameter(begin.shape, init=begin, dtype=begin.dtype)
    learner, gradients = adam(rule, [parameter]), []
    for samples in (7, 3, 12, 1):
        gradient = stream.standard_normal(begin.shape).astype(precision)
        gradients.append({"w": gradient})
        expected = updated_by_hand({"w": begin}, gradients, rule)["w"]
        learner.update({parameter: C.NDArrayView.from_data(np.array(gradient * samples, precision))}, samples)
        np.testing.assert_allclose(parameter.value, expected, rtol=CLOSE[precision], atol=CLOSE[precision])


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_decoupled_decay_follows_the_rule_and_the_rate(precision):
    rule, stream, samples = RULE._replace(decoupled=True), np.random.RandomState(1), 4
    begin = stream.standard_normal((3, 5)).astype(precision)
    parameter = C.Parameter(begin.shape, init=begin, dtype=begin.dtype)
    [learner], set_rate, _ = adam_of_operations(rule, [parameter], samples)
    gradients = []
    for _ in range(4):
        gradient = stream.standard_normal(begin.shape).astype(precision)
        gradients.append({"w": gradient})
        expected = updated_by_hand({"w": begin}, gradients, rule)["w"]
        learner.update({parameter: C.NDArrayView.from_data(np.array(gradient * samples, precision))}, samples)
        np.testing.assert_allclose(parameter.value, expected, rtol=CLOSE[precision], atol=CLOSE[precision])
    set_rate(0.0)
    before = parameter.value.copy()
    learner.update({parameter: C.NDArrayView.from_data(np.array(gradient, precision))}, samples)
    assert (parameter.value == before).all()


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_momentum_keeps_its_velocity_when_the_rate_changes(precision, share):
    rule, stream, samples = SGD(0.1, 0.9, 0.05), np.random.RandomState(1), 4
    weight = stream.standard_normal((3, 5)).astype(precision)
    parameter = C.Parameter(weight.shape, init=weight, dtype=weight.dtype)
    [learner], set_rate, set_kept = momentum_at_any_rate(rule, [parameter], samples, share)
    velocity = np.zeros_like(weight)
    for rate, kept in ((0.1, 1.0), (0.1, 1.0), (0.01, 1.0), (0.2, 0.0), (0.2, 1.0)):
        set_rate(rate)
        set_kept(kept)
        gradient = stream.standard_normal(weight.shape).astype(precision)
        taken = np.array(gradient * samples, precision)
        learner.update({parameter: C.NDArrayView.from_data(taken)}, int(samples * share))
        velocity = kept * rule.momentum**share * velocity + gradient + share * rule.weight_decay * weight
        weight = weight - rate * velocity
        np.testing.assert_allclose(parameter.value, weight, rtol=CLOSE[precision], atol=CLOSE[precision])
