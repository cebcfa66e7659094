"""What MXNet means by a layer, where that is easily another thing than the graph's; the rest is the proof's."""

import mxnet as mx
import numpy as np
import pytest

from adapters.mxnet.lower import Choices
from adapters.mxnet.net import Net
from suite.worker.contract import Unsupported
from tests.support import proofs
from tests.support.errors import raising
from workloads.build import Builder
from workloads.graph import Graph

RNG = np.random.RandomState(3)


def pooling(kind, shape, **attrs):
    graph = Graph("one", shape, 3)
    graph.add("it", kind, ("input",), **attrs)
    graph.add_head(graph.add("out", "dense", (graph.add("flat", "flatten", ("it",)),), out=3))
    return graph


def built(graph, samples=2, dtype="float64"):
    values = {p.name: RNG.standard_normal(p.shape) for p in graph.parameters}
    return Net(graph, values, [mx.cpu()], dtype, samples, Choices(False, True, dtype))


def proven(trainer, graph, folder, samples=2):
    oracle = proofs.write_oracle(graph, samples, folder)
    found = proofs.prove(trainer(batch=samples, precision="float64"), graph, samples, oracle)
    return {kind: max(errors.values()) for kind, errors in found["errors"].items()}


@pytest.mark.parametrize("kind", ["max_pool", "avg_pool"])
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 6, 6), {"kernel": 3, "stride": 2, "ceil": True}),  # rounded up
        ((2, 5, 5), {"kernel": 2, "stride": 3, "pad": 1, "ceil": True}),  # the last window in the padding alone
        ((2, 7, 6), {"kernel": 3, "stride": 2, "ceil": True}),  # one axis needs no rounding
        ((2, 6, 7), {"kernel": 3, "stride": 2, "pad": 1}),
    ],
)
def test_a_pooling_is_the_graphs(trainer, tmp_path, kind, shape, window):
    b = Builder("pooling", shape, 3)
    b.conv("conv", "input", 2, 1)
    b.graph.add("it", kind, ("conv",), **window)
    b.head(b.dense("fc", b.flatten("flat", "it"), 3))
    assert max(proven(trainer, b.graph, tmp_path).values()) < 1e-6


def test_axes_that_round_differently_are_unsupported():
    """Along one axis the last window is dropped, along the other kept: MXNet has one word for both."""
    graph = pooling("max_pool", (2, 6, 8), kernel=3, stride=4, pad=1, ceil=True)
    net = built(graph)
    with pytest.raises(Unsupported, match=r"'it' pools \(6, 8\) to \(2, 3\); MXNet makes \(2, 2\) of it"):
        net(mx.sym.var("data"))


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_running_variance_is_the_unbiased_one(updates, dtype):
    b = Builder("norm", (3, 2, 2), 3)
    b.graph.add("it", "batch_norm", ("input",), momentum=0.75, eps=1e-3)
    b.head(b.dense("fc", b.flatten("flat", "it"), 3))
    net = built(b.graph, samples=4, dtype=dtype)
    images = RNG.standard_normal((4, 3, 2, 2)) * 3
    np.testing.assert_allclose(net.tensors(mx.cpu())["it.running_var"], 1.0, rtol=1e-6)
    expected = np.ones(3)
    for _ in range(updates):
        expected = 0.75 * expected + 0.25 * images.var((0, 2, 3), ddof=1)
        with mx.autograd.record():
            (logits,) = net(mx.nd.array(images, dtype=dtype))
        logits.backward()
    np.testing.assert_allclose(net.tensors(mx.cpu())["it.running_var"], expected, rtol=1e-5)


def test_batch_statistics_over_one_number_are_unsupported():
    b = Builder("norm", (3, 1, 1), 3)
    b.graph.add("it", "batch_norm", ("input",))
    b.head(b.dense("fc", b.flatten("flat", "it"), 3))
    with raising(Unsupported, "it"):
        built(b.graph, samples=1)


def test_dropout_keeps_the_expected_share_and_scale():
    graph = Graph("drop", (100, 10, 10), 2)
    graph.add("it", "dropout", ("input",), rate=0.3)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("it",)),), out=2))
    net = built(graph, dtype="float32")
    output = net(mx.sym.var("data"))[0].get_internals()["it_output"]
    run = output.simple_bind(mx.cpu(), data=(4, 100, 10, 10), grad_req="null")
    dropped = run.forward(is_train=True, data=mx.nd.ones((4, 100, 10, 10)))[0].asnumpy()
    kept = dropped[dropped != 0]
    assert abs(len(kept) / dropped.size - 0.7) < 0.015  # five deviations of 40,000 draws: 0.0115
    np.testing.assert_allclose(kept, 1 / 0.7, rtol=1e-6)
