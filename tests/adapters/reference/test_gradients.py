"""Every backward against central finite differences of its forward, in float64."""

import numpy as np
import pytest

from stagebench.adapters.reference.lower import LAYERS, Network
from stagebench.suite.worker.feed import synthetic
from stagebench.workloads import kinds
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks.gpt import gpt
from stagebench.workloads.networks.vit import vit

H = 1e-5
PICKED = 10  # entries of each tensor that are moved


def ended(graph, x):
    """Flatten, if need be, and attach a dense head of three classes."""
    if len(graph.layers[-1].shape) > 1:
        x = graph.add("flat", "flatten", (x,))
    graph.add_head(graph.add("logits", "dense", (x,), out=graph.classes))
    return graph


def single(kind, attrs, channels=4, size=7):
    """Conv, the kind in question, head: the conv's gradients carry the kind's input gradient."""
    graph = Graph(kind, (2, size, size), 3)
    x = graph.add("first", "conv", ("input",), out=channels, kernel=3, pad=1)
    return ended(graph, graph.add("it", kind, (x,), **attrs))


def flat(kind, attrs):
    """Dense, the kind in question on a flat input, head."""
    graph = Graph(kind, (9,), 3)
    return ended(graph, graph.add("it", kind, (graph.add("first", "dense", ("input",), out=8),), **attrs))


def joined(kind):
    """Three uses of one value and one of another, joined by the kind."""
    graph = Graph(kind, (2, 5, 5), 3)
    a = graph.add("a", "conv", ("input",), out=3, kernel=3, pad=1)
    b = graph.add("b", "conv", (a,), out=3, kernel=1)
    return ended(graph, graph.add("it", kind, (a, b, a, a)))


def small_inception():
    """GoogLeNet's habits in small: LRN, ceil pooling, groups, branches, two heads."""
    graph = Graph("inception", (3, 11, 11), 3)
    x = graph.add("c1", "conv", ("input",), out=6, kernel=3, stride=2, pad=2, groups=3)
    x = graph.add("p1", "max_pool", (graph.add("r1", "relu", (x,)),), kernel=3, stride=2, ceil=True)
    x = graph.add("n1", "lrn", (x,), size=3, alpha=0.3, beta=0.6, k=1.5)
    a = graph.add("a", "conv", (x,), out=4, kernel=1)
    b = graph.add("b", "avg_pool", (x,), kernel=3, stride=1, pad=1, count_padding=True)
    x = graph.add("cat", "concat", (a, b))
    graph.add_head(graph.add("aux", "dense", (graph.add("aux_flat", "flatten", (a,)),), out=3), 0.3)
    return ended(graph, graph.add("drop", "dropout", (x,), rate=0.0))


def small_residual():
    """ResNet's habits in small: batch normalisation before a sum with an identity."""
    graph = Graph("residual", (2, 6, 6), 3)
    x = graph.add("c1", "conv", ("input",), out=4, kernel=3, pad=1, bias=False)
    x = graph.add("r1", "relu", (graph.add("b1", "batch_norm", (x,)),))
    y = graph.add("c2", "conv", (x,), out=4, kernel=3, pad=1, bias=False)
    x = graph.add("r2", "relu", (graph.add("sum", "add", (graph.add("b2", "batch_norm", (y,)), x)),))
    return ended(graph, graph.add("pool", "avg_pool", (x,), kernel=6, stride=1))


def over_tokens(kind, **attrs):
    """Tokens of an image, a dense layer, the kind in question, head."""
    graph = Graph(kind, (2, 4, 6), 3)
    x = graph.add("first", "dense", (graph.add("cut", "tokens", ("input",), patch=2),), out=12)
    return ended(graph, graph.add("it", kind, (x,), **attrs))


def attending(**attrs):
    graph = Graph("attention", (2, 4, 6), 3)
    x = graph.add("first", "dense", (graph.add("cut", "tokens", ("input",), patch=2),), out=4)
    return ended(graph, graph.add("it", "attention", (graph.add("qkv", "qkv", (x,)),), **attrs))


def looked_up():
    """Some numbers come twice, others never."""
    graph = Graph("embedding", (6,), 3)
    return ended(graph, graph.add("it", "embedding", ("input",), vocabulary=9, out=4))


def cut_late():
    """Tokens of what a convolution made, whose gradients they carry."""
    graph = Graph("tokens", (2, 4, 6), 3)
    x = graph.add("first", "conv", ("input",), out=3, kernel=3, pad=1)
    return ended(graph, graph.add("it", "tokens", (x,), patch=2))


GRAPHS = {
    "conv": single("conv", {"out": 6, "kernel": 3, "stride": 2, "pad": 1, "groups": 2}),
    "conv wide pad": single("conv", {"out": 3, "kernel": 2, "stride": 3, "pad": 3, "bias": False}),
    "conv leftover": single("conv", {"out": 3, "kernel": 3, "stride": 3}, size=8),
    "dense": flat("dense", {"out": 5}),
    "dense without bias": flat("dense", {"out": 5, "bias": False}),
    "relu": single("relu", {}),
    "max_pool": single("max_pool", {"kernel": 3, "stride": 2}),
    "max_pool ceil": single("max_pool", {"kernel": 3, "stride": 2, "pad": 1, "ceil": True}, size=8),
    "avg_pool": single("avg_pool", {"kernel": 3, "stride": 2, "pad": 1, "ceil": True}, size=8),
    "avg_pool padding": single(
        "avg_pool", {"kernel": 3, "stride": 2, "pad": 1, "ceil": True, "count_padding": True}, size=8
    ),
    "lrn": single("lrn", {"size": 5, "alpha": 0.7, "beta": 0.75, "k": 2.0}, channels=7),
    "lrn even": single("lrn", {"size": 4, "alpha": 0.7, "beta": 0.5, "k": 1.0}),
    "batch_norm": single("batch_norm", {}),
    "batch_norm flat": flat("batch_norm", {}),
    "dropout": single("dropout", {"rate": 0.0}),
    "concat": joined("concat"),
    "add": joined("add"),
    "flatten": single("flatten", {}),
    "tokens": cut_late(),
    "dense over tokens": over_tokens("dense", out=5),
    "class_token": over_tokens("class_token"),
    "positions": over_tokens("positions"),
    "positions unused": over_tokens("positions", rows=9),
    "layer_norm": over_tokens("layer_norm", eps=0.01),
    "qkv": over_tokens("qkv"),
    "attention": attending(heads=2),
    "attention causal": attending(heads=1, causal=True),
    "gelu": over_tokens("gelu"),
    "select": over_tokens("select", position=3),
    "mean": over_tokens("mean"),
    "embedding": looked_up(),
    "tied": gpt("tied", 5, 7, 8, 2, 1),
    "vit": vit("vit", (3, 4, 4), 2, 8, 2, 2, 3),
    "inception": small_inception(),
    "residual": small_residual(),
}


def random_weights(graph):
    stream = np.random.RandomState(3)
    return {p.name: stream.standard_normal(p.shape) * 0.5 for p in graph.parameters}


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_gradients_are_the_slope_of_the_loss(name):
    graph = GRAPHS[name]
    stream = np.random.RandomState(5)
    images, labels = synthetic(graph, 4, 5)
    network = Network(graph, random_weights(graph))

    def loss():
        return network.forward(images, labels, observe=False).loss

    network.backward(network.forward(images, labels, observe=False), 1.0)
    gradients, weights = network.named("gradients"), network.named("weights")
    assert set(gradients) == {p.name for p in graph.parameters}
    for key, gradient in gradients.items():
        picked = stream.permutation(gradient.size)[:PICKED]
        values, slopes = weights[key].reshape(-1), []
        for index in picked:
            value = values[index]
            values[index] = value + H
            above = loss()
            values[index] = value - H
            slopes.append((above - loss()) / (2 * H))
            values[index] = value
        found = gradient.reshape(-1)[picked]
        # The absolute part: a bias before batch normalisation has no slope at all.
        assert np.linalg.norm(found - slopes) <= 1e-6 * np.linalg.norm(slopes) + 1e-9, key


def test_every_kind_is_lowered_and_tried():
    tried = {layer.kind for graph in GRAPHS.values() for layer in graph.layers}
    assert set(LAYERS) == set(kinds.KINDS) == tried


def test_a_layer_that_bears_no_loss_gets_no_gradient():
    graph = Graph("dead end", (4,), 3)
    graph.add("unused", "dense", ("input",), out=2)
    graph.add_head(graph.add("logits", "dense", ("input",), out=3))
    network = Network(graph, random_weights(graph))
    network.backward(network.forward(np.ones((2, 4)), np.array([0, 1]), observe=False), 1.0)
    assert set(network.named("gradients")) == {"logits.weight", "logits.bias"}
