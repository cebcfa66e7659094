"""The update rule, against the formula."""

import numpy as np
import pytest
import torch

from stagebench.adapters.caffempi.net import Arena, Span
from stagebench.adapters.caffempi.optimisers import solver_of
from stagebench.suite.worker.contract import SGD, Adam
from stagebench.workloads.build import Builder
from tests.support.proofs import updated_by_hand


def arena():
    b = Builder("small", (2, 5, 5), 3)
    b.head(b.dense("fc", b.flatten("flat", b.conv("conv", "input", 4, 3)), 3))
    return Arena(b.graph, True, torch.float64)


@pytest.mark.parametrize("rule", [SGD(0.1, 0.0, 0.01), SGD(0.1, 0.9, 0.01), Adam(0.01, 0.8, 0.99, 0.05, 0.1)])
def test_spans_of_one_update_may_be_updated_as_they_arrive(rule):
    filled, stream, gradients = arena(), np.random.RandomState(0), []
    start = {"all": stream.standard_normal(len(filled.parameters))}
    filled.parameters.copy_(torch.from_numpy(start["all"]))
    solver, half = solver_of(filled, rule), len(filled.parameters) // 2
    for _ in range(4):
        gradients.append({"all": stream.standard_normal(len(filled.parameters))})
        filled.gradients.copy_(torch.from_numpy(gradients[-1]["all"]))
        solver.begin()
        solver.update(Span(half, 2 * half))
        solver.update(Span(0, half))
        solver.update(Span(half, half))
        np.testing.assert_allclose(
            filled.parameters.numpy(), updated_by_hand(start, gradients, rule)["all"], rtol=1e-12
        )
        np.testing.assert_array_equal(filled.gradients.numpy(), gradients[-1]["all"])


def test_views_are_canonical_whatever_the_memory_format():
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


def test_a_missing_weight_is_named():
    with pytest.raises(KeyError, match=r"conv\.weight"):
        arena().load({})


NAMES = ["conv.weight", "conv.bias", "fc.weight", "fc.bias"]
