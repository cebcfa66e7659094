"""Adam and SGD move the weights as `suite.worker.trainer` writes them down, in every strategy of one process."""

import numpy as np
import pytest

from suite.worker.contract import SGD, Adam
from suite.worker.feed import synthetic
from workloads import weights
from workloads.build import Builder

ADAM = Adam(1e-3, 0.9, 0.999, 1e-7, weight_decay=1e-2)
WAYS = [("single", 1), ("kvstore_local", 2), ("kvstore_device", 2)]
UPDATES = 4


def network():
    b = Builder("small", (2, 6, 6), 3)
    b.head(b.dense("fc", b.flatten("flat", b.conv_relu("conv", "input", 4, 3)), 3))
    return b.graph


class Plain:
    """The rule in NumPy float64."""

    def __init__(self, rule, initial):
        self.rule, self.update = rule, 0
        self.weights = {name: values.astype(np.float64) for name, values in initial.items()}
        self.first = {name: np.zeros(values.shape) for name, values in initial.items()}
        self.second = {name: np.zeros(values.shape) for name, values in initial.items()}

    def apply(self, gradients):
        self.update += 1
        for name, gradient in gradients.items():
            whole = gradient + self.rule.weight_decay * self.weights[name]
            self.weights[name] -= self.step(name, whole)

    def step(self, name, gradient):
        rule = self.rule
        if isinstance(rule, SGD):
            self.first[name] = rule.momentum * self.first[name] + gradient
            return rule.lr * self.first[name]
        self.first[name] = rule.beta1 * self.first[name] + (1 - rule.beta1) * gradient
        self.second[name] = rule.beta2 * self.second[name] + (1 - rule.beta2) * gradient**2
        rate = rule.lr * np.sqrt(1 - rule.beta2**self.update) / (1 - rule.beta1**self.update)
        return rate * self.first[name] / (np.sqrt(self.second[name]) + rule.epsilon)


@pytest.mark.parametrize("rule", [ADAM, SGD(0.01, 0.9, 1e-2)], ids=["adam", "sgd"])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize(("strategy", "devices"), WAYS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_update_is_the_rules(trainer, strategy, devices, tuning, precision, rule):
    graph = network()
    initial = dict(weights.initial(graph))
    ours = trainer(strategy=strategy, devices=devices, tuning=tuning, precision=precision, batch=4, optimiser=rule)
    staged, gradients = [], []
    ours.build(graph, initial)
    batch = ours.to_device(synthetic(graph, 4, 1))
    for _ in range(UPDATES):
        ours.forward(batch)
        ours.backward()
        ours.communicate()
        gradients.append(ours.gradients())
        ours.update()
        staged.append(ours.parameters())
    ours.build(graph, initial)  # the moments start at zero again
    native = []
    for _ in range(UPDATES):
        ours.step(batch)
        native.append(ours.parameters())
    plain = Plain(rule, initial)
    for number in range(UPDATES):
        plain.apply(gradients[number])
        for found in (staged[number], native[number]):
            for name, expected in plain.weights.items():
                moved = np.abs(expected - initial[name]).max()
                bound = 3e-7 * moved if precision == "float64" else 2e-5 * moved + 1e-7 * np.abs(expected).max()
                np.testing.assert_allclose(found[name], expected, rtol=0, atol=bound)
    ours.begin_training()
    assert "staleness" not in ours.notes(), "nobody updates meanwhile"
    notes = {"default": "gluon.Trainer, ", "tuned": "_update, one a parameter"}
    assert notes[tuning] in ours.notes()["optimiser"]


def test_a_lone_step_counts_as_an_update_of_adam(trainer):
    graph = network()
    ours, twice = (trainer(batch=4, precision="float64", optimiser=ADAM) for _ in range(2))
    for each, steps in ((ours, ("step", "step_alone")), (twice, ("step", "step"))):
        each.build(graph, dict(weights.initial(graph)))
        batch = each.to_device(synthetic(graph, 4, 1))
        for name in steps:
            getattr(each, name)(batch)
    for name, values in ours.parameters().items():
        np.testing.assert_array_equal(values, twice.parameters()[name])
