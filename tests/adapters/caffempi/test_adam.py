"""Adam is the rule that `suite.worker.trainer` writes down, alone and in spans."""

import numpy as np
import pytest
import torch

from adapters.caffempi.net import Arena, Span
from adapters.caffempi.optimisers import solver_of
from suite.worker.contract import Adam
from tests.support import networks, proofs, trainers
from tests.support.trainers import by_strategy

trainer = by_strategy("caffempi")


# An epsilon as large as the gradients' roots: one that stands in the wrong place shows at once.
@pytest.mark.parametrize("rule", [Adam(1e-3, 0.9, 0.999, 1e-7, 0.0), Adam(0.01, 0.8, 0.99, 0.05, 0.1)])
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_every_update_is_the_formulas(rule, precision, tuning):
    ours = trainer(trainers.setup(precision=precision, tuning=tuning, optimiser=rule))
    ours.start()
    proofs.assert_updates_follow(ours, networks.one_convolution(), rule)


def test_spans_of_one_update_share_its_count():
    filled = Arena(networks.one_convolution(), True, torch.float64)
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
