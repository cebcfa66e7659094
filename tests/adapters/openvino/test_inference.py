"""What a proof of the answers does not show: queries in flight, and networks that ONNX cannot say."""

import numpy as np
import pytest

from stagebench.adapters.openvino.inference import OpenVinoPredictor
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.queries import tensors_of
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from tests.support import trainers


def predictor_of(graph, **asked):
    predictor = OpenVinoPredictor(trainers.setup_with_knobs(batch=8, **asked))
    predictor.start()
    predictor.load(graph, tensors_of(graph, dict(weights.initial(graph))))
    return predictor


def network(size=5):
    b = Builder("asked", (6, 8, 8), 3)
    x = b.lrn("norm", b.conv_bn("conv", "input", 6, 3, pad=1), size=size, alpha=1e-4, beta=0.75, k=1.0)
    b.head(b.dense("fc", b.flatten("flat", x), 3))
    return b.graph


@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_a_query_in_flight_keeps_its_answers(hint, tuning):
    predictor, random = predictor_of(network(), hint=hint, tuning=tuning), np.random.default_rng(1)
    first, second = random.standard_normal((2, 8, 6, 8, 8)).astype(np.float32)
    begun = [predictor.run(predictor.place(each)) for each in (first, second[:3])]
    answers = [predictor.fetch(each) for each in begun]
    assert answers[1].shape == (3, 3)
    np.testing.assert_allclose(answers[0], predictor.answer(first), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(answers[1], predictor.answer(second)[:3], rtol=1e-4, atol=1e-5)


def test_a_network_that_onnx_cannot_say_is_unsupported():
    with pytest.raises(Unsupported, match="'norm' normalises over 4 channels"):
        predictor_of(network(size=4))
