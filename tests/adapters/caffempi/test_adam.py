"""Adam is the rule that `suite.worker.trainer` writes down, alone and in spans."""

import numpy as np
import pytest
import torch

from adapters.caffempi.arena import Arena, Span
from adapters.caffempi.solver import solver_of
from adapters.caffempi.worker import trainer
from suite.worker.contract import Adam
from suite.worker.feed import synthetic
from tests.support import proofs, trainers
from workloads import weights
from workloads.build import Builder


def network():
    b = Builder("small", (2, 6, 6), 3)
    b.head(b.dense("fc", b.flatten("flat", b.relu("relu", b.conv("conv", "input", 4, 3))), 3))
    return b.graph


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
def test_every_update_is_the_formulas(rule, precision, tuning):
    graph, updates = network(), 5
    start = dict(weights.initial(graph))
    ours = trainer(trainers.setup(precision=precision, tuning=tuning, optimiser=rule))
    ours.start()
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


def test_spans_of_one_update_share_its_count():
    filled = Arena(network(), True, torch.float64)
    rule, stream = Adam(0.01, 0.8, 0.99, 0.05, 0.1), np.random.RandomState(0)
    start = {"all": stream.standard_normal(len(filled.parameters))}
    filled.parameters.copy_(torch.from_numpy(start["all"]))
    ours, gradients = solver_of(filled, rule), []
    half = len(filled.parameters) // 2
    for _ in range(4):
        gradients.append({"all": stream.standard_normal(len(filled.parameters))})
        filled.gradients.copy_(torch.from_numpy(gradients[-1]["all"]))
        ours.begin()
        ours.update(Span(half, 2 * half))  # spans may be updated as they arrive
        ours.update(Span(0, half))
        ours.update(Span(half, half))
    assert (
        proofs.movement_error({"all": filled.parameters.numpy()}, proofs.updated_by_hand(start, gradients, rule), start)
        < 1e-11
    )
