"""CNTK's Adam against the rule of suite.worker.trainer, written out in NumPy."""

import numpy as np
import pytest

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.learners import adam
from suite.worker.contract import Adam
from suite.worker.feed import synthetic
from tests.support.networks import one_convolution
from workloads import weights

RULE = Adam(0.003, 0.8, 0.95, 1e-2, 0.05)
UPDATES = 4
CLOSE = {"float32": 2e-6, "float64": 1e-12}


class Rule:
    """One tensor's state."""

    def __init__(self, values):
        self.w, self.m, self.v, self.t = values.astype(np.float64), 0.0, 0.0, 0

    def update(self, gradient, rule):
        self.t += 1
        g = gradient + rule.weight_decay * self.w
        self.m = rule.beta1 * self.m + (1 - rule.beta1) * g
        self.v = rule.beta2 * self.v + (1 - rule.beta2) * g * g
        correction = np.sqrt(1 - rule.beta2**self.t) / (1 - rule.beta1**self.t)
        self.w -= rule.lr * correction * self.m / (np.sqrt(self.v) + rule.epsilon)


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_learner_follows_the_rule_for_sums_over_any_number_of_samples(precision, decay):
    rule, stream = RULE._replace(weight_decay=decay), np.random.RandomState(1)
    begin = stream.standard_normal((3, 5)).astype(precision)
    parameter = C.Parameter(begin.shape, init=begin, dtype=begin.dtype)
    learner, expected = adam(rule, [parameter]), Rule(begin)
    for samples in (7, 3, 12, 1):
        gradient = stream.standard_normal(begin.shape).astype(precision)
        expected.update(gradient, rule)
        learner.update({parameter: C.NDArrayView.from_data(np.array(gradient * samples, precision))}, samples)
        np.testing.assert_allclose(parameter.value, expected.w, rtol=CLOSE[precision], atol=CLOSE[precision])


@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_staged_updates_follow_the_rule(trainer, tuning, precision):
    graph = one_convolution(normalised=True)
    ours = trainer(tuning=tuning, precision=precision, batch=8, optimiser=RULE)
    names = {parameter.name for parameter in graph.parameters}
    for _ in range(2):  # the second time Adam's state is what it was before the first
        ours.build(graph, dict(weights.initial(graph)))
        batch = ours.to_device(synthetic(graph, 8, 1))
        rules = {name: Rule(values) for name, values in ours.parameters().items() if name in names}
        for _ in range(UPDATES):
            ours.forward(batch)
            ours.backward()
            ours.communicate()
            for name, gradient in ours.gradients().items():
                rules[name].update(gradient.astype(np.float64), RULE)
            ours.update()
            found = ours.parameters()
            for name, rule in rules.items():
                np.testing.assert_allclose(found[name], rule.w, rtol=1e-5, atol=CLOSE[precision], err_msg=name)
