"""Every layer kind against NumPy expressions of the graph's words, in float64; windows and layouts."""

import numpy as np
import pytest
import tensorflow as tf

from adapters.reference.lower import Network
from adapters.tensorflow import lower
from adapters.tensorflow.lower import Style
from adapters.tensorflow.net import COUNT, Layout, Net
from tests.support.networks import drawn, one_layer
from workloads import kinds
from workloads.graph import Graph

RNG = np.random.RandomState(3)
IMAGES = RNG.standard_normal((4, 6, 9, 8)).astype(np.float32)
LABELS = np.array([0, 3, 6, 2])

CASES = {
    "conv": [
        {"out": 4, "kernel": 3, "stride": 2, "pad": 1, "groups": 2},
        {"out": 4, "kernel": 3, "pad": 1, "bias": False},
        {"out": 4, "kernel": 2, "stride": 3, "pad": 2},
        {"out": 4, "kernel": 1, "stride": 2},
    ],
    "relu": [{}],
    "max_pool": [
        {"kernel": 3, "stride": 2, "pad": 1, "ceil": True},
        {"kernel": 3, "stride": 2, "ceil": True},
        {"kernel": 3, "stride": 1, "pad": 1},
        {"kernel": 2, "stride": 3},
    ],
    "avg_pool": [
        {"kernel": 3, "stride": 3, "pad": 1},
        {"kernel": 3, "stride": 2, "pad": 1, "ceil": True, "count_padding": True},
        {"kernel": 2, "stride": 2, "ceil": True},
        {"kernel": 2, "stride": 2},
    ],
    "lrn": [{"size": 3, "alpha": 0.3, "k": 2.0}, {"size": 4, "alpha": 0.3, "beta": 0.6}, {"size": 13, "alpha": 0.5}],
    "batch_norm": [{"eps": 1e-3, "momentum": 0.75}],
    "dropout": [{"rate": 0.0}],
    "concat": [{}],
    "add": [{}],
    "flatten": [{}],
    "dense": [{"out": 5}, {"out": 5, "bias": False}],
}


def lowered(graph, weights, fast, precision="float64", grouped=False):
    """(net, its variables, layout) in NHWC."""
    layout = Layout(graph, "NHWC")
    values = {name: layout.native(name, each) for name, each in weights.items()}
    values.update((name, np.full(shape, float("var" in name))) for name, shape in graph.buffers)
    own = {name: tf.Variable(tf.constant(each, precision)) for name, each in values.items()}
    own[COUNT] = tf.Variable(tf.constant(0, tf.int64))
    return Net(graph, own, Style(fast, "NHWC", precision, grouped, layout.folded), (1, 0)), own, layout


def test_every_kind_has_a_case():
    assert set(CASES) == set(kinds.KINDS)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("kind", "attrs"), [(kind, attrs) for kind in sorted(CASES) for attrs in CASES[kind]])
def test_a_kind_means_what_the_graph_says(kind, attrs, fast):
    """Loss, gradients of the parameters and running statistics equal the reference's (proven by differences)."""
    graph = one_layer(kind, attrs, IMAGES.shape[1:])
    weights = drawn(graph)
    net, own, layout = lowered(graph, weights, fast)
    with tf.GradientTape() as tape:
        loss, _ = net.loss(tf.constant(IMAGES.transpose(0, 2, 3, 1), tf.float64), tf.constant(LABELS))
    gradients = tape.gradient(loss, net.trainable)
    reference = Network(graph, weights, 1)
    run = reference.forward(IMAGES.astype(np.float64), LABELS, observe=True)
    reference.backward(run, 1.0)
    np.testing.assert_allclose(loss, run.loss, rtol=1e-10)
    expected = reference.named("gradients")
    for parameter, gradient in zip(graph.parameters, gradients, strict=True):
        found = layout.canonical(parameter.name, gradient.numpy())
        np.testing.assert_allclose(found, expected[parameter.name], rtol=1e-7, atol=1e-10)
    for name, values in reference.named("statistics").items():
        np.testing.assert_allclose(own[name].numpy(), values, rtol=1e-9)


def test_a_layer_below_a_lowered_one_gets_its_gradient():
    """The composed LRN writes its own gradient: with respect to its input, even windows included."""
    for attrs in CASES["lrn"]:
        graph = Graph("two", IMAGES.shape[1:], 7)
        conv = graph.add("conv", "conv", ("input",), out=6, kernel=1)
        flat = graph.add("end", "flatten", (graph.add("it", "lrn", (conv,), **attrs),))
        graph.add_head(graph.add("out", "dense", (flat,), out=7))
        weights = drawn(graph)
        net, _, layout = lowered(graph, weights, fast=False)
        with tf.GradientTape() as tape:
            loss, _ = net.loss(tf.constant(IMAGES.transpose(0, 2, 3, 1), tf.float64), tf.constant(LABELS))
        reference = Network(graph, weights, 1)
        reference.backward(reference.forward(IMAGES.astype(np.float64), LABELS, observe=True), 1.0)
        for parameter, gradient in zip(graph.parameters, tape.gradient(loss, net.trainable), strict=True):
            found = layout.canonical(parameter.name, gradient.numpy())
            np.testing.assert_allclose(found, reference.named("gradients")[parameter.name], rtol=1e-7, atol=1e-10)


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
    assert lower.same_padding(graph.layers[0]) is expected


def test_weights_go_there_and_back_and_dense_rows_follow_the_images():
    graph = one_layer("conv", CASES["conv"][0], IMAGES.shape[1:])
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


def test_dropout_keeps_the_expected_share_and_scale():
    graph = Graph("drop", (100, 10, 10), 2)
    dropped = graph.add("it", "dropout", ("input",), rate=0.3)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", (dropped,)),), out=2))
    net, _, _ = lowered(graph, drawn(graph), True, "float32")
    operation = net.operations[dropped]
    once = operation(tf.ones((4, 10, 10, 100))).numpy()
    kept = once[once != 0]
    assert abs(len(kept) / once.size - 0.7) < 0.015  # five deviations of 40,000 draws: 0.0115
    np.testing.assert_allclose(kept, 1 / 0.7, rtol=1e-6)
    net.heads(tf.ones((4, 10, 10, 100)))
    assert not np.array_equal(once, operation(tf.ones((4, 10, 10, 100))).numpy())
