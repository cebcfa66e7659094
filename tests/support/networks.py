"""Small networks, each made for what a test looks at."""

import numpy as np

from workloads.build import Builder
from workloads.graph import Graph


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


def one_layer(kind, attrs, shape=(6, 9, 9), behind=None):
    """The layer in question, then a dense head of seven; a convolution before it has the attributes `behind`."""
    graph = Graph("one", shape, 7)
    source = graph.add("before", "conv", ("input",), **behind) if behind else "input"
    if kind == "dense":
        source = graph.add("flat", "flatten", (source,))
    last = graph.add("it", kind, (source, source) if kind in ("concat", "add") else (source,), **attrs)
    if kind not in ("dense", "flatten"):
        last = graph.add("end", "flatten", (last,))
    graph.add_head(graph.add("out", "dense", (last,), out=7))
    return graph


def drawn(graph):
    """Every parameter from a normal distribution; `weights.initial` has zeros and ones for biases and scales."""
    stream = np.random.RandomState(5)
    return {p.name: stream.standard_normal(p.shape).astype(np.float32) for p in graph.parameters}
