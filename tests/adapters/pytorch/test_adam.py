"""Adam is the rule that `suite.worker.contract` writes down, in either tuning."""

import pytest

from suite.worker.contract import Adam
from suite.worker.feed import synthetic
from tests.support import networks, proofs
from workloads import weights


def staged(ours, batch, updates):
    gradients = []
    for _ in range(updates):
        ours.forward(batch)
        ours.backward()
        ours.communicate()
        gradients.append(ours.gradients())
        ours.update()
    return gradients


# An epsilon as large as the gradients' roots: one that stands in the wrong place shows at once.
@pytest.mark.parametrize("rule", [Adam(1e-3, 0.9, 0.999, 1e-7, 0.0), Adam(0.01, 0.8, 0.99, 0.05, 0.1)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_every_update_is_the_formulas(trainer, rule, precision, tuning):
    graph, updates = networks.one_convolution(), 5
    start = dict(weights.initial(graph))
    ours = trainer(tuning=tuning, precision=precision, batch=4, optimiser=rule)
    for _ in range(2):  # a second build starts afresh
        ours.build(graph, start)
        batch = ours.to_device(synthetic(graph, 4, 1))
        wanted = proofs.updated_by_hand(start, staged(ours, batch, updates), rule)
        found = ours.parameters()
        assert proofs.movement_error(found, wanted, start) < (1e-11 if precision == "float64" else 2e-5)
    ours.build(graph, start)
    for _ in range(updates):
        ours.step(batch)
    native = ours.parameters()
    assert proofs.movement_error(native, wanted, start) < (1e-11 if precision == "float64" else 2e-5)
