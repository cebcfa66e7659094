"""Networks as ONNX models: computed by ONNX Runtime, they give what the oracle gives in inference."""

import numpy as np
import onnx
import onnxruntime
import pytest

from stagebench.adapters.reference.base import ReferenceTrainer
from stagebench.suite.errors import RequestError
from stagebench.suite.proofs.every_adapter import probe_graph, text_graph, token_graph
from stagebench.suite.worker import onnx_network
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import weights
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.support.errors import raising
from tests.support.trainers import setup

EXACT = 2e-6  # of the largest logit, in float32


def worst(graph):
    """How far the model's logits are from the oracle's, once three steps have changed the running statistics."""
    oracle, batch = ReferenceTrainer(setup(batch=2, precision="float64")), synthetic(graph, 2, 1)
    oracle.start()
    oracle.build(graph, dict(weights.initial(graph)))
    for _ in range(3):
        oracle.step(batch)
    tensors = oracle.parameters()
    model = onnx_network.model(graph, tensors, tensors)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"input": batch.inputs})
    expected = oracle.predict(batch)
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("graph", [probe_graph, token_graph, text_graph, by_name()["mnist_large"].graph])
def test_it_computes_what_the_oracle_does(graph):
    assert worst(graph().without_dropout()) < EXACT


def test_a_shorter_context_takes_the_first_of_the_positions():
    graph = text_graph().without_dropout()
    assert worst(graph.with_context(graph.input_shape[0] - 1)) < EXACT


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "ceil", "extent"),
    [(3, 2, 0, True, 8), (3, 2, 1, True, 8), (2, 3, 0, True, 9), (3, 2, 1, False, 7), (3, 3, 1, True, 9)],
)
@pytest.mark.parametrize("count_padding", [True, False])
def test_windows_that_reach_beyond_the_input_are_exact(kernel, stride, pad, ceil, extent, count_padding):
    b = Builder("windows", (2, extent, extent + 1), 3)
    window = {"kernel": kernel, "stride": stride, "pad": pad, "ceil": ceil}
    mean = b.graph.add("mean", "avg_pool", ("input",), count_padding=count_padding, **window)
    both = b.graph.add("both", "concat", (mean, b.graph.add("most", "max_pool", ("input",), **window)))
    b.head(b.dense("fc", b.flatten("flat", both), 3))
    assert worst(b.graph) < EXACT


@pytest.mark.parametrize("name", sorted(set(by_name()) - {"gpt2", "resnet152", "alexnet"}))
def test_every_network_is_a_model_that_onnx_s_checker_takes(name):
    graph = by_name()[name].graph()
    model = onnx_network.model(graph, dict(weights.initial(graph)), {})
    sizes = {each.name: int(np.prod(each.dims)) for each in model.graph.initializer}
    assert sum(sizes[parameter.name] for parameter in graph.parameters) == graph.parameter_count


def test_only_the_answer_may_be_called_as_the_output_is():
    graph = Graph("named", (4,), 3)
    graph.add_head(graph.add("logits", "dense", ("input",), out=3))
    assert worst(graph) < EXACT
    graph.add_head(graph.add("fc", "dense", ("logits",), out=3))
    with raising(ValueError, "fc"):
        onnx_network.model(graph, dict(weights.initial(graph)), {})


def test_layers_without_an_exact_operator_are_refused():
    b = Builder("even", (4, 6, 6), 3)
    b.head(b.dense("fc", b.flatten("flat", b.graph.add("norm", "lrn", ("input",), size=4)), 3))
    with raising(ValueError, "norm", 4):
        onnx_network.model(b.graph, dict(weights.initial(b.graph)), {})


def test_the_command_writes_a_file_and_names_what_it_cannot_write(stagebench, tmp_path):
    file = tmp_path / "small.onnx"
    assert "gpt_char@32, 834,304 parameters" in stagebench("export-network", "gpt_char@32", "-o", str(file)).out
    model = onnx.load(file)
    (given,) = model.graph.input
    assert [each.dim_param or each.dim_value for each in given.type.tensor_type.shape.dim] == ["samples", 32]
    with raising(RequestError, "resnet51"):
        raise stagebench("export-network", "resnet51", "-o", str(file)).error
    with raising(RequestError, "nowhere"):
        raise stagebench("export-network", "mnist_small", "-o", str(tmp_path / "nowhere" / "x.onnx")).error
