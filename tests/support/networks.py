"""Small networks, each made for what a test looks at."""

import numpy as np

from stagebench.workloads.build import Builder, gaussian
from stagebench.workloads.graph import Graph


def two_heads(width=6, grouped=False):
    """Every layer kind that a trainer treats in its own way: a residual sum, LRN, dropout, both poolings, two heads."""
    b = Builder("small", (3, 12, 12), 5)
    x = b.relu("r1", b.conv_bn("c1", "input", width, 3, pad=1))
    if grouped:
        x = b.graph.add("grouped", "conv", (x,), out=width, kernel=3, pad=1, groups=2)
    x = b.lrn("n1", b.relu("r2", b.add("sum", b.conv_bn("c2", x, width, 3, pad=1), x)), alpha=0.1)
    b.head(b.dense("fc1", b.flatten("f1", b.avg_pool("a", x, 4, 4)), 5), 0.3)
    b.head(b.dense("fc2", b.flatten("f2", b.dropout("d", b.max_pool("p", x, 3, 2, ceil=True), 0.5)), 5))
    return b.graph


def two_blocks():
    """A block of three branches, a head that reads its input, too, and a residual block of two; dropout at the end."""
    b = Builder("blocks", (3, 12, 12), 5)
    stem = b.conv_relu("stem", "input", 6, 3, pad=1)
    branches = [
        b.conv_relu("wide", stem, 4, 3, pad=1),
        b.conv_bn("deep", b.conv_relu("reduce", stem, 3, 1), 5, 3, pad=1),
        b.max_pool("pool", stem, 3, 1, pad=1),
    ]
    x = b.concat("joined", *branches)
    b.head(b.dense("side", b.flatten("side_flat", b.avg_pool("side_pool", stem, 4, 4)), 5), 0.3)
    x = b.relu("sum_relu", b.add("sum", b.conv_bn("left", x, 8, 3, pad=1), b.conv("right", x, 8, 1)))
    b.head(b.dense("fc", b.dropout("d", b.flatten("flat", b.max_pool("p", x, 3, 2, ceil=True)), 0.5), 5))
    return b.graph


def one_convolution(normalised=False):
    """A convolution, with a bias or normalised, and a dense layer: quick, where the layers are not the question."""
    b = Builder("convolution", (2, 6, 6), 3)
    x = b.conv_bn("conv", "input", 4, 3) if normalised else b.conv("conv", "input", 4, 3)
    b.head(b.dense("fc", b.flatten("flat", b.relu("relu", x)), 3))
    return b.graph


def perceptron(dropout=0.5):
    """Two dense layers with dropout between: the quickest to compile."""
    b = Builder("perceptron", (3, 4, 4), 5)
    x = b.relu("relu", b.dense("fc1", b.flatten("flat", "input"), 16))
    b.head(b.dense("fc2", b.dropout("drop", x, dropout) if dropout else x, 5))
    return b.graph


WINDOWS = [
    {"kernel": kernel, "stride": stride, "pad": pad, "ceil": ceil}
    for kernel, stride, pad, ceil in [
        *((2, 2, 0, False), (3, 2, 0, True), (3, 2, 1, False), (3, 2, 1, True)),
        *((3, 1, 1, False), (2, 3, 1, True), (4, 3, 2, True), (5, 3, 1, False)),
    ]
]
CASES = {  # of every kind, all that frameworks disagree on
    "conv": [
        {"out": 4, "kernel": 3, "stride": 2, "pad": 1, "groups": 2},
        {"out": 4, "kernel": 3, "pad": 1, "bias": False},
        {"out": 4, "kernel": 2, "stride": 3, "pad": 2},
        {"out": 4, "kernel": 5, "stride": 2, "pad": 1},
        {"out": 4, "kernel": 2, "pad": 1},
        {"out": 4, "kernel": 1},
        {"out": 4, "kernel": 1, "stride": 2},
        {"out": 5, "kernel": 1, "pad": 1, "bias": False},
        {"out": 6, "kernel": 1, "groups": 3},
    ],
    "max_pool": WINDOWS,
    "avg_pool": [dict(window, count_padding=count) for window in WINDOWS for count in {False, bool(window["pad"])}],
    "lrn": [
        *({"size": size, "alpha": 0.3, "k": 2.0} for size in (1, 3, 4, 5, 13)),
        *({"size": size, "alpha": 0.3, "beta": 0.6} for size in (3, 4)),
    ],
    "batch_norm": [{"eps": 1e-3, "momentum": 0.75}, {}],
    "dense": [{"out": 5}, {"out": 5, "bias": False}],
    "dropout": [{"rate": 0.0}],
    **{kind: [{}] for kind in ("relu", "concat", "add", "flatten")},
    "tokens": [{"patch": 1}],
}
OVER_TOKENS = {
    "layer_norm": [{"eps": 1e-3}],
    "qkv": [{}, {"bias": False}],
    "attention": [{"heads": 2, "causal": True}, {"heads": 1}],
    "select": [{"position": 5}],
    "positions": [{}, {"rows": 80}],
    **{kind: [{}] for kind in ("class_token", "gelu", "mean")},
}
CASES.update(OVER_TOKENS)
OF_TEXT = {"embedding", "tied"}


def every_case(kind, shape=(6, 9, 8)):
    """A head for each of the kind's cases, behind a convolution whose gradient shows that of the layer's input."""
    if kind in OF_TEXT:
        return text()
    graph = Graph(kind, shape, 7)
    for number, attrs in enumerate(CASES[kind]):
        source = graph.add("before%d" % number, "conv", ("input",), out=6, kernel=1)
        if kind == "dense":
            source = graph.add("flat%d" % number, "flatten", (source,))
        if kind in OVER_TOKENS:
            source = graph.add("cut%d" % number, "tokens", (source,), patch=1)
        last = graph.add("it%d" % number, kind, (source,) * (1 + (kind in ("concat", "add"))), **attrs)
        if len(graph.layers[-1].shape) > 1:
            last = graph.add("end%d" % number, "flatten", (last,))
        graph.add_head(graph.add("out%d" % number, "dense", (last,), out=7))
    return graph


def text():
    """Heads over tokens looked up: the first is tied to the table, the last follows one tied to a dense layer."""
    graph = Graph("text", (6,), 9)
    x = graph.add("table", "embedding", ("input",), vocabulary=9, out=4, init=gaussian(0.5))
    x = graph.add("bent", "gelu", (graph.add("between", "dense", (x,), out=4),))
    graph.add_head(graph.add("it", "tied", (x,), to="table", out=9))
    x = graph.add("again", "tied", (x,), to="between", out=4)
    graph.add_head(graph.add("out", "dense", (x,), out=9), 0.3)
    return graph


def branches():
    """Residual and inception-like joins, rectifiers that may and that must not work in place, two heads."""
    b = Builder("branches", (6, 9, 8), 7)
    x = b.conv("stem", "input", 6, 3, pad=1)
    left = b.relu("left", x)  # the stem's output is read below again
    x = b.relu("sum_relu", b.add("sum", left, b.conv_bn("right", x, 6, 1), x))
    one = b.conv_relu("one", x, 4, 1)
    two = b.conv_relu("two", b.max_pool("pool", x, 3, 1, pad=1), 4, 3, pad=1)
    x = b.concat("joined", one, x, two, one)
    average = b.graph.add("ave", "avg_pool", (x,), kernel=3, stride=2)
    b.head(b.dense("aux", b.flatten("aux_flat", average), 7), 0.3)
    flat = b.flatten("flat", x)
    b.head(b.dense("fc", b.add("twice", b.relu("flat_relu", flat), b.dropout("nothing", flat, 0.0)), 7))
    return b.graph


def one_layer(kind, attrs, shape=(6, 9, 9)):
    """The layer in question, then a dense head of seven."""
    graph = Graph("one", shape, 7)
    last = graph.add("end", "flatten", (graph.add("it", kind, ("input",), **attrs),))
    graph.add_head(graph.add("out", "dense", (last,), out=7))
    return graph


def pointwise():
    """Two 1x1 convolutions and two dense layers, with biases and without; one of 1x1 in steps of two."""
    b = Builder("pointwise", (6, 9, 9), 5)
    x = b.relu("relu", b.conv_bn("wide", "input", 8, 1))
    x = b.conv_relu("narrow", b.conv_relu("strided", x, 8, 1, stride=2), 4, 1)
    x = b.graph.add("hidden", "dense", (b.flatten("flat", x),), out=7, bias=False)
    b.head(b.dense("fc", x, 5))
    return b.graph


def drawn(graph):
    """Every parameter from a normal distribution; `weights.initial` has zeros and ones for biases and scales."""
    stream = np.random.RandomState(5)
    return {p.name: stream.standard_normal(p.shape).astype(np.float32) for p in graph.parameters}
