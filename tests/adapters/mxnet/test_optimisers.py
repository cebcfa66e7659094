"""Adam and SGD move the weights as `suite.worker.contract` writes them down, in every strategy of one process."""

import numpy as np
import pytest

from suite.worker.contract import SGD, Adam
from suite.worker.feed import synthetic
from tests.support import networks, proofs
from workloads import weights

ADAM = Adam(1e-3, 0.9, 0.999, 1e-7, weight_decay=1e-2)
STRATEGIES = [("single", 1), ("kvstore_local", 2), ("kvstore_device", 2)]
UPDATES = 4


@pytest.mark.parametrize("rule", [ADAM, SGD(0.01, 0.9, 1e-2)], ids=["adam", "sgd"])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize(("strategy", "devices"), STRATEGIES)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_every_update_is_the_rules(trainer, strategy, devices, tuning, precision, rule):
    graph = networks.one_convolution()
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
    for number in range(UPDATES):
        updated = proofs.updated_by_hand(initial, gradients[: number + 1], rule)
        for found in (staged[number], native[number]):
            for name, expected in updated.items():
                moved = np.abs(expected - initial[name]).max()
                bound = 3e-7 * moved if precision == "float64" else 2e-5 * moved + 1e-7 * np.abs(expected).max()
                np.testing.assert_allclose(found[name], expected, rtol=0, atol=bound)
    ours.begin_training()
    assert "staleness" not in ours.notes(), "nobody updates meanwhile"
    notes = {"default": "gluon.Trainer, ", "tuned": "_update, one a parameter"}
    assert notes[tuning] in ours.notes()["optimiser"]


def test_a_lone_step_counts_as_an_update_of_adam(trainer):
    graph = networks.one_convolution()
    ours, twice = (trainer(batch=4, precision="float64", optimiser=ADAM) for _ in range(2))
    for each, steps in ((ours, ("step", "step_alone")), (twice, ("step", "step"))):
        each.build(graph, dict(weights.initial(graph)))
        batch = each.to_device(synthetic(graph, 4, 1))
        for name in steps:
            getattr(each, name)(batch)
    for name, values in ours.parameters().items():
        np.testing.assert_array_equal(values, twice.parameters()[name])
