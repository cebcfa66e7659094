"""The update rule, against the formula."""

import numpy as np
import pytest
import torch

from adapters.caffempi.net import Arena, Span
from adapters.caffempi.optimisers import solver_of
from suite.worker.contract import SGD
from workloads.build import Builder


def arena() -> Arena:
    b = Builder("small", (2, 5, 5), 3)
    b.head(b.dense("fc", b.flatten("flat", b.conv("conv", "input", 4, 3)), 3))
    return Arena(b.graph, True, torch.float64)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_and_weight_decay_as_the_contract_says(momentum: float) -> None:
    filled = arena()
    stream = np.random.RandomState(0)
    w, v = stream.standard_normal(len(filled.parameters)), np.zeros(len(filled.parameters))
    filled.parameters.copy_(torch.from_numpy(w))
    solver = solver_of(filled, SGD(0.1, momentum, 0.01))
    half = len(w) // 2
    for _ in range(4):
        g = stream.standard_normal(len(w))
        filled.gradients.copy_(torch.from_numpy(g))
        v = momentum * v + g + 0.01 * w
        w = w - 0.1 * v
        solver.begin()
        solver.update(Span(0, half))  # spans may be updated as they arrive
        solver.update(Span(half, len(w)))
        solver.update(Span(half, half))
        np.testing.assert_allclose(filled.parameters.numpy(), w, rtol=1e-12)
        np.testing.assert_array_equal(filled.gradients.numpy(), g)


def test_views_are_canonical_whatever_the_memory_format() -> None:
    filled = arena()
    weights = {n: np.random.RandomState(1).standard_normal(filled.view(filled.parameters, n).shape) for n in NAMES}
    filled.load(weights)
    exported = filled.export(filled.parameters)
    assert list(exported) == NAMES
    for name in NAMES:
        np.testing.assert_array_equal(exported[name], weights[name])
        assert exported[name].flags.c_contiguous
    assert filled.view(filled.parameters, "conv.weight").is_contiguous(memory_format=torch.channels_last)
    assert all(span.begin % 16 == 0 for span in filled.spans)


def test_a_missing_weight_is_named() -> None:
    with pytest.raises(KeyError, match=r"conv\.weight"):
        arena().load({})


NAMES = ["conv.weight", "conv.bias", "fc.weight", "fc.bias"]
