"""Windows and layouts."""

import numpy as np
import pytest
import tensorflow as tf

from stagebench.adapters.tensorflow import windows
from stagebench.adapters.tensorflow.lower import Style
from stagebench.adapters.tensorflow.net import COUNT, Layout, Net
from stagebench.workloads.graph import Graph
from tests.support.networks import CASES, drawn, one_layer

RNG = np.random.RandomState(3)


def lowered(graph, weights, fast, precision="float64", grouped=False):
    """(net, its variables, layout) in NHWC."""
    layout = Layout(graph, "NHWC")
    values = {name: layout.native(name, each) for name, each in weights.items()}
    values.update((name, np.full(shape, float("var" in name))) for name, shape in graph.buffers)
    own = {name: tf.Variable(tf.constant(each, precision)) for name, each in values.items()}
    own[COUNT] = tf.Variable(tf.constant(0, tf.int64))
    return Net(graph, own, Style(fast, "NHWC", precision, grouped, layout.folded), (1, 0)), own, layout


@pytest.mark.parametrize(
    ("extent", "attrs", "expected"),
    [
        (8, {"kernel": 3, "stride": 1, "pad": 1}, True),
        (8, {"kernel": 3, "stride": 2, "pad": 1}, False),  # "SAME" would pad 0 and 1
        (9, {"kernel": 3, "stride": 2, "pad": 1}, True),
        (8, {"kernel": 3, "stride": 2, "ceil": True}, True),
        (9, {"kernel": 3, "stride": 2, "ceil": True}, False),
        (8, {"kernel": 2, "stride": 2}, True),
    ],
)
def test_same_is_taken_only_where_it_is_the_same(extent, attrs, expected):
    graph = Graph("one", (1, extent, extent), 2)
    graph.add("it", "max_pool", ("input",), **attrs)
    assert windows.same_padding(graph.layers[0]) is expected


def test_weights_go_there_and_back_and_dense_rows_follow_the_images():
    graph = one_layer("conv", CASES["conv"][0], (6, 9, 8))
    layout = Layout(graph, "NHWC")
    assert layout.folded == {"end"}
    for name, values in drawn(graph).items():
        native = layout.native(name, values)
        np.testing.assert_array_equal(layout.canonical(name, native), values)
    shape = next(layer.shape for layer in graph.layers if layer.name == "it")
    image, weight = RNG.standard_normal(shape), RNG.standard_normal((7, int(np.prod(shape))))
    flat = image.transpose(1, 2, 0).reshape(-1)
    np.testing.assert_allclose(flat @ layout.native("out.weight", weight), weight @ image.reshape(-1))


def test_a_flat_that_others_read_too_is_transposed():
    graph = Graph("shared", (2, 3, 4), 24)
    flat = graph.add("flat", "flatten", ("input",))
    graph.add_head(graph.add("out", "dense", (flat,), out=24))
    graph.add_head(flat)
    assert Layout(graph, "NHWC").folded == frozenset()
    weights = drawn(graph)
    net, _, _ = lowered(graph, weights, False)
    images = RNG.standard_normal((2, 2, 3, 4))
    out, seen = net.heads(tf.constant(images.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(seen, images.reshape(2, -1))
    np.testing.assert_allclose(out, images.reshape(2, -1) @ weights["out.weight"].T + weights["out.bias"])
