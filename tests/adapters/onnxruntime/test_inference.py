"""What a proof of the answers does not show: queries in flight, and networks that ONNX cannot say."""

import numpy as np
import pytest

from stagebench.adapters.onnxruntime.inference import OrtPredictor
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.adapters.alike import assert_queries_are_apart
from tests.support import proofs, trainers


def predictor_of(graph, tuning="tuned"):
    predictor = OrtPredictor(trainers.setup(batch=8, tuning=tuning))
    predictor.start()
    predictor.load(graph, tensors_of(graph, dict(weights.initial(graph))))
    return predictor


def network(size=5, beta=0.75):
    b = Builder("asked", (6, 8, 8), 3)
    x = b.lrn("norm", b.conv_bn("conv", "input", 6, 3, pad=1), size=size, alpha=0.3, beta=beta, k=1.0)
    b.head(b.dense("fc", b.flatten("flat", x), 3))
    return b.graph


@pytest.mark.parametrize("tuning", ["default", "tuned"])
def test_queries_in_flight_have_their_own_answers(tuning):
    assert_queries_are_apart(OrtPredictor, tuning)


@pytest.mark.parametrize(("size", "beta"), [(5, 0.75), (4, 0.75), (3, 0.6)])
def test_normalisation_over_channels_is_exact_as_a_convolution(size, beta):
    graph = network(size, beta)
    batch, oracle = synthetic(graph, 8, 1), proofs.reference(batch=8)
    oracle.build(graph, dict(weights.initial(graph)))
    np.testing.assert_allclose(predictor_of(graph).answer(batch.inputs), oracle.predict(batch), rtol=1e-4, atol=1e-5)


def test_a_network_that_onnx_cannot_say_is_unsupported():
    with pytest.raises(Unsupported, match="'norm' normalises over 4 channels"):
        predictor_of(network(size=4), tuning="default")
