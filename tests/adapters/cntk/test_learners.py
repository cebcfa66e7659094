"""CNTK's learners against the rules of suite.worker.trainer, written out in NumPy."""

import numpy as np
import pytest

from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from adapters.cntk.optimisers import adam, momentum_at_any_rate
from suite.worker.contract import SGD, Adam
from tests.support.proofs import updated_by_hand

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
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_momentum_keeps_its_velocity_when_the_rate_changes(precision, share):
    rule, stream, samples = SGD(0.1, 0.9, 0.05), np.random.RandomState(1), 4
    weight = stream.standard_normal((3, 5)).astype(precision)
    parameter = C.Parameter(weight.shape, init=weight, dtype=weight.dtype)
    learner, set_rate, set_kept = momentum_at_any_rate(rule, [parameter], samples, share)
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
