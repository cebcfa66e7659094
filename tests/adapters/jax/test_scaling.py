"""The scale of a float16 loss: halved with a skipped update when a gradient overflows, doubled after good ones."""

import jax
import numpy as np
import pytest

from stagebench.adapters.jax import optimisers
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from tests.support import trainers
from tests.support.networks import one_convolution

RULES = [SGD(0.01, 0.9, 1e-3), Adam(1e-3, 0.9, 0.999, 1e-7, 1e-3)]


def built(ours, scale=None):
    graph = one_convolution()
    ours.build(graph, dict(weights.initial(graph)))
    if scale is not None:
        old, good, own = ours._state.moments
        ours._state = ours._state._replace(moments=(jax.device_put(np.float32(scale), old.sharding), good, own))
    return ours.to_device(synthetic(graph, 8, 1))


def scale_of(ours):
    return float(ours._state[1][0])


def good_of(ours):
    return int(ours._state[1][1])


@pytest.mark.parametrize("rule", RULES, ids=["sgd", "adam"])
@pytest.mark.parametrize("strategy", ["single", "pmap"])
@pytest.mark.parametrize("staged", [False, True])
def test_an_overflow_halves_the_scale_and_skips_the_update(trainer, rule, strategy, staged):
    ours = trainer(strategy=strategy, precision="float16", batch=8, optimiser=rule)
    batch = built(ours, 2.0**40)
    before, own = ours.parameters(), [np.asarray(leaf) for leaf in jax.tree.leaves(ours._state[1][2])]
    if staged:
        trainers.staged(ours, batch)
    else:
        ours.step(batch)
    assert (scale_of(ours), good_of(ours)) == (2.0**39, 0)
    after = ours.parameters()
    trained = [name for name in before if not name.endswith(("running_mean", "running_var"))]
    assert all(np.array_equal(before[name], after[name]) for name in trained)
    for old, new in zip(own, jax.tree.leaves(ours._state[1][2]), strict=True):
        np.testing.assert_array_equal(old, new)
    assert np.isfinite(ours.loss()), "the loss is told without the scale"
    while good_of(ours) == 0:
        ours.step(batch)
    assert scale_of(ours) < 2.0**39
    assert not all(np.array_equal(before[name], ours.parameters()[name]) for name in trained)


def test_a_long_run_without_one_doubles_it(trainer, monkeypatch):
    monkeypatch.setattr(optimisers, "UPDATES_TO_DOUBLE", 3)
    ours = trainer(precision="float16", batch=8)
    batch = built(ours)
    assert scale_of(ours) == optimisers.FIRST_SCALE
    found = [ours.step(batch) or (scale_of(ours), good_of(ours)) for _ in range(4)]
    assert found == [(1024, 1), (1024, 2), (2048, 0), (2048, 1)]
    assert ours.notes()["precision"].endswith("dynamic loss scaling, now 2048")


@pytest.mark.parametrize("strategy", ["single", "pmap"])
def test_gradients_are_told_without_the_scale(trainer, strategy):
    found = []
    for scale in (2.0**4, 2.0**14):
        ours = trainer(strategy=strategy, precision="float16", batch=8)
        ours.forward(built(ours, scale))
        ours.backward()
        ours.communicate()
        found.append(ours.gradients())
    for name, gradient in found[0].items():
        distance = np.linalg.norm(gradient - found[1][name]) / np.linalg.norm(gradient)
        assert distance < 2e-2, name


def test_small_gradients_are_not_lost(trainer):
    """What float16 does not tell from 0 is there with a scale that lifts it."""
    found = []
    for scale in (2.0**-40, optimisers.FIRST_SCALE):
        ours = trainer(precision="float16", batch=8)
        ours.forward(built(ours, scale))
        ours.backward()
        found.append(np.count_nonzero(ours.gradients()["conv.weight"]))
    assert found[0] == 0 < found[1]


def test_the_learning_rate_may_change(trainer):
    moved = []
    for rate in (0.0, 0.1):
        ours = trainer(precision="float16", batch=8, changing_rate=True)
        batch = built(ours)
        ours.set_learning_rate(rate)
        before = ours.parameters()
        ours.step(batch)
        moved.append(any(not np.array_equal(before[name], ours.parameters()[name]) for name in ours._state[0]))
    assert moved == [False, True]
