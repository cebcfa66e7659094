"""Tuned inference, by PyTorch's adapter: its answers are those of the net's layers one by one."""

import numpy as np
import pytest

from stagebench.adapters.caffempi.inference import CaffeMPIPredictor
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from stagebench.workloads.networks import by_name
from tests.support import networks
from tests.support.trainers import setup

GRAPHS = {
    "two heads": networks.two_heads(grouped=True),
    "two blocks": networks.two_blocks(),
    "normalised": networks.one_convolution(normalised=True),
    "gpt_char": by_name()["gpt_char"].graph(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_fused_layers_answer_as_single_ones_do(name):
    graph, found = GRAPHS[name], {}
    stream = np.random.RandomState(1)
    shape = (8, *graph.input_shape)
    queries = stream.randint(0, graph.vocabulary, shape) if graph.vocabulary else stream.standard_normal(shape)
    queries = queries.astype(np.int64 if graph.vocabulary else np.float32)
    for tuning in ("default", "tuned"):
        made = CaffeMPIPredictor(setup(strategy="inference", tuning=tuning, batch=4))
        made.start()
        made.load(graph, tensors_of(graph, weights.for_proof(graph)))
        assert isinstance(made, CaffeMPIPredictor) == (tuning == "default")
        found[tuning] = np.concatenate([made.answer(queries[:count]) for count in (1, 4, 8)])
    np.testing.assert_allclose(found["tuned"], found["default"], rtol=1e-4, atol=1e-5)
