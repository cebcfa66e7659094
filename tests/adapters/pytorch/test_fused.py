"""Inference by fused operators: the answers of every shape of network are those of its layers one by one."""

import numpy as np
import pytest

from stagebench.adapters.pytorch.fused import Fused
from stagebench.adapters.pytorch.inference import TorchPredictor
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support import networks
from tests.support.trainers import setup


def built(tail):
    """A convolution, what `tail` makes of it, and a dense layer."""
    b = Builder("tail", (3, 8, 8), 5)
    x = tail(b, b.conv("stem", "input", 4, 3, pad=1))
    b.head(b.dense("fc", b.flatten("flat", x), 5))
    return b.graph


TAILS = {
    "a sum with its input": lambda b, x: b.relu("r", b.add("s", b.conv("c", x, 4, 3, pad=1), x)),
    "a sum in the other order": lambda b, x: b.relu("r", b.add("s", x, b.conv("c", x, 4, 3, pad=1))),
    "a sum of two convolutions": lambda b, x: b.relu(
        "r", b.add("s", b.conv("c", x, 4, 1), b.conv("d", x, 4, 3, pad=1))
    ),
    "a rectifier before the sum": lambda b, x: b.add("s", b.relu("r", b.conv("c", x, 4, 3, pad=1)), x),
    "a sum that is read twice": lambda b, x: b.add("t", s := b.add("s", b.conv("c", x, 4, 1), x), b.relu("r", s)),
    "a convolution that is read twice": lambda b, x: b.add("s", b.relu("r", x), b.conv("c", x, 4, 1)),
    "a sum with itself": lambda b, x: b.relu("r", b.add("s", x, x)),
}
GRAPHS = {
    **{name: built(tail) for name, tail in TAILS.items()},
    "two heads": networks.two_heads(grouped=True),
    "two blocks": networks.two_blocks(),
    "normalised": networks.one_convolution(normalised=True),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_fused_layers_answer_as_single_ones_do(name, layout):
    graph, other = GRAPHS[name], networks.one_convolution()
    queries = np.random.RandomState(1).standard_normal((8, *graph.input_shape)).astype(np.float32)
    knobs = {"memory_format": layout, "compile": False}
    predictor = TorchPredictor(setup(strategy="inference", tuning="tuned", batch=4, knobs=knobs))
    predictor.start()
    assert predictor._fuses
    found = []
    for fuses in (True, False):
        predictor._fuses = fuses
        for each in (other, graph):
            predictor.load(each, tensors_of(each, weights.for_proof(each)))
        net = predictor._run.__self__ if fuses else predictor._run
        assert fuses == any(isinstance(operation, Fused) for operation, *_ in net.program)
        found.append([predictor.answer(queries[:count]) for count in (1, 4, 8)])
    predictor.close()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_sum_overwrites_an_addend_that_nothing_else_reads():
    predictor = TorchPredictor(setup(strategy="inference", tuning="tuned", batch=4, knobs={"compile": False}))
    predictor.start()
    overwriting = set()
    for name, graph in GRAPHS.items():
        predictor.load(graph, tensors_of(graph, weights.for_proof(graph)))
        operations = [operation for operation, *_ in predictor._run.__self__.program]
        overwriting |= {name for each in operations if isinstance(each, Fused) and each.run_into_addend}
    predictor.close()
    assert overwriting == {"a sum of two convolutions", "two blocks"}
