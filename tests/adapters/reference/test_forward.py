"""Every forward against a definition written out element by element."""

import itertools
import math

import numpy as np
import pytest

from stagebench.adapters.reference.lower import LAYERS, cross_entropy
from stagebench.workloads.graph import Graph
from tests.support.errors import raising


def lowered(kind, shape, weights=None, inputs=1, **attrs):
    graph = Graph("one", shape, 3)
    graph.add("it", kind, ("input",) * inputs, **attrs)
    return LAYERS[kind](graph.layers[0], weights or {}, seed=1)


def cells(*extents):
    return itertools.product(*map(range, extents))


def window(image, y, x, attrs):
    """Values of one channel under a window, row by row, without padding."""
    top, left = y * attrs["stride"] - attrs["pad"], x * attrs["stride"] - attrs["pad"]
    rows = range(max(top, 0), min(top + attrs["kernel"], image.shape[0]))
    columns = range(max(left, 0), min(left + attrs["kernel"], image.shape[1]))
    return [image[i, j] for i in rows for j in columns]


@pytest.mark.parametrize(
    ("groups", "stride", "pad", "kernel"), [(1, 1, 0, 1), (1, 1, 1, 3), (2, 2, 1, 3), (4, 3, 2, 2)]
)
def test_convolution(groups, stride, pad, kernel):
    stream = np.random.RandomState(0)
    images = stream.standard_normal((2, 4, 6, 5))
    weight = stream.standard_normal((8, 4 // groups, kernel, kernel))
    bias = stream.standard_normal(8)
    layer = lowered(
        "conv", (4, 6, 5), {"weight": weight, "bias": bias}, out=8, kernel=kernel, stride=stride, pad=pad, groups=groups
    )
    found, _ = layer.forward([images])
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)), "constant")
    assert found.shape[1:] == (8, (6 + 2 * pad - kernel) // stride + 1, (5 + 2 * pad - kernel) // stride + 1)
    for n, o, y, x in cells(*found.shape):
        wanted = bias[o]
        first = o // (8 // groups) * (4 // groups)
        for c, i, j in cells(4 // groups, kernel, kernel):
            wanted += weight[o, c, i, j] * padded[n, first + c, y * stride + i, x * stride + j]
        assert found[n, o, y, x] == pytest.approx(wanted, rel=1e-12, abs=1e-12)


POOLS = [
    {"kernel": 2, "stride": 2, "pad": 0, "ceil": False},
    {"kernel": 3, "stride": 2, "pad": 0, "ceil": True},
    {"kernel": 3, "stride": 2, "pad": 1, "ceil": True},
    {"kernel": 3, "stride": 1, "pad": 1, "ceil": False},
    {"kernel": 2, "stride": 3, "pad": 1, "ceil": True},
]


@pytest.mark.parametrize("attrs", POOLS)
def test_max_pool_takes_the_largest_and_never_the_padding(attrs):
    images = -1.0 - np.random.RandomState(0).random_sample((2, 3, 8, 6))  # all below the padding's 0
    found, _ = lowered("max_pool", (3, 8, 6), **attrs).forward([images])
    for n, c, y, x in cells(*found.shape):
        assert found[n, c, y, x] == max(window(images[n, c], y, x, attrs))


@pytest.mark.parametrize("attrs", POOLS)
def test_avg_pool_divides_by_the_real_elements(attrs):
    images = np.random.RandomState(0).random_sample((2, 3, 8, 6))
    found, _ = lowered("avg_pool", (3, 8, 6), **attrs).forward([images])
    for n, c, y, x in cells(*found.shape):
        assert found[n, c, y, x] == pytest.approx(np.mean(window(images[n, c], y, x, attrs)), rel=1e-12)


def test_avg_pool_counts_padding_but_not_what_hangs_over_it():
    attrs = {"kernel": 3, "stride": 2, "pad": 1, "ceil": True}
    found, _ = lowered("avg_pool", (1, 4, 4), count_padding=True, **attrs).forward([np.ones((1, 1, 4, 4))])
    # Windows begin at -1, 1, 3: the last ends at 6, of which 3 and the padding's 4 count.
    shares = np.array([2 / 3, 3 / 3, 1 / 2])
    assert found[0, 0] == pytest.approx(np.outer(shares, shares), rel=1e-12)


def test_max_pool_gives_the_gradient_of_a_tie_to_the_first():
    layer = lowered("max_pool", (1, 2, 4), kernel=2, stride=2)
    _, kept = layer.forward([np.array([[[[0.0, 7.0, 1.0, 1.0], [7.0, 7.0, 1.0, 1.0]]]])])
    gradient = layer.backward(kept, np.array([[[[3.0, 5.0]]]]))[0]
    assert gradient.tolist() == [[[[0.0, 3.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]


@pytest.mark.parametrize(("size", "before", "after"), [(3, 1, 1), (5, 2, 2), (4, 2, 1)])
def test_lrn(size, before, after):
    images = np.random.RandomState(0).standard_normal((1, 6, 1, 1))
    found, _ = lowered("lrn", (6, 1, 1), size=size, alpha=0.5, beta=0.75, k=2.0).forward([images])
    values = images[0, :, 0, 0]
    for c in range(6):
        squares = sum(v * v for v in values[max(0, c - before) : c + after + 1])
        assert found[0, c, 0, 0] == pytest.approx(values[c] * (2.0 + 0.5 / size * squares) ** -0.75, rel=1e-12)


def test_batch_norm_and_its_running_statistics():
    values = np.array([1.0, 2.0, 4.0, 9.0]).reshape(2, 1, 2, 1)  # mean 4, biased variance 9.5, unbiased 38/3
    layer = lowered("batch_norm", (1, 2, 1), {"weight": [3.0], "bias": [-1.0]}, eps=0.5, momentum=0.9)
    found, kept = layer.forward([values])
    assert found.reshape(-1) == pytest.approx([3.0 * (v - 4.0) / math.sqrt(10.0) - 1.0 for v in (1, 2, 4, 9)])
    assert layer.statistics["running_mean"] == pytest.approx([0.0])
    layer.observe(kept)
    layer.observe(kept)
    assert layer.statistics["running_mean"] == pytest.approx([(0.1 + 0.09) * 4.0])
    assert layer.statistics["running_var"] == pytest.approx([0.81 + 0.19 * 38 / 3])


def test_batch_norm_refuses_statistics_of_one_value():
    layer = lowered("batch_norm", (2, 1, 1), {"weight": [1.0, 1.0], "bias": [0.0, 0.0]})
    _, kept = layer.forward([np.ones((1, 2, 1, 1))])
    with raising(ValueError, "it"):
        layer.observe(kept)


def test_dense_is_out_by_in():
    layer = lowered("dense", (2,), {"weight": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "bias": [0.5, 0.0, 0.0]}, out=3)
    assert layer.forward([np.array([[1.0, 10.0]])])[0].tolist() == [[21.5, 43.0, 65.0]]


def test_relu_at_zero_has_no_slope():
    layer = lowered("relu", (3,))
    output, kept = layer.forward([np.array([[-1.0, 0.0, 2.0]])])
    assert output.tolist() == [[0.0, 0.0, 2.0]]
    assert layer.backward(kept, np.ones((1, 3)))[0].tolist() == [[0.0, 0.0, 1.0]]


def test_flatten_is_in_channel_row_column_order():
    found, _ = lowered("flatten", (2, 2, 2)).forward([np.arange(8.0).reshape(1, 2, 2, 2)])
    assert found.tolist() == [list(range(8))]


def test_tokens_are_patches_by_row_in_channel_row_column_order():
    found, _ = lowered("tokens", (2, 4, 6), patch=2).forward([np.arange(48.0).reshape(1, 2, 4, 6)])
    assert found.shape == (1, 6, 8)
    assert found[0, 1].tolist() == [2, 3, 8, 9, 26, 27, 32, 33]
    assert found[0, 3].tolist() == [12, 13, 18, 19, 36, 37, 42, 43]


def test_a_class_token_comes_first_and_positions_are_added():
    x = np.arange(6.0).reshape(1, 2, 3)
    found, _ = lowered("class_token", (2, 3), {"weight": [[[7.0, 8.0, 9.0]]]}).forward([x])
    assert found.tolist() == [[[7, 8, 9], [0, 1, 2], [3, 4, 5]]]
    found, _ = lowered("positions", (2, 3), {"weight": 10 * np.ones((1, 2, 3))}).forward([x])
    assert found.tolist() == [[[10, 11, 12], [13, 14, 15]]]
    assert lowered("select", (2, 3), position=1).forward([x])[0].tolist() == [[3, 4, 5]]
    assert lowered("mean", (2, 3)).forward([x])[0].tolist() == [[1.5, 2.5, 3.5]]


def test_a_layer_norm_is_each_token_s_own_with_eps_in_the_variance():
    layer = lowered("layer_norm", (2, 2), {"weight": [2.0, 3.0], "bias": [0.0, 1.0]}, eps=3.0)
    found, _ = layer.forward([np.array([[[-1.0, 1.0], [8.0, 8.0]]])])
    assert found.tolist() == [[[-1.0, 2.5], [0.0, 1.0]]]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_definition(causal):
    x = np.random.RandomState(0).standard_normal((2, 3, 12))
    found, _ = lowered("attention", (3, 12), heads=2, causal=causal).forward([x])
    for n, query, head in cells(2, 3, 2):
        q, k, v = (x[n, :, part + 2 * head : part + 2 * head + 2] for part in (0, 4, 8))
        seen = range(query + 1 if causal else 3)
        weights = [math.exp(q[query] @ k[key] / math.sqrt(2.0)) for key in seen]
        wanted = sum(weight * v[key] for weight, key in zip(weights, seen)) / sum(weights)
        assert found[n, query, 2 * head : 2 * head + 2] == pytest.approx(wanted, rel=1e-12)


def test_gelu_is_the_approximation():
    found, _ = lowered("gelu", (3, 1)).forward([np.array([[[-1.0], [0.0], [2.0]]])])
    assert found.reshape(-1) == pytest.approx([-0.15880801, 0.0, 1.95459769], abs=1e-8)  # Hendrycks 2016, equation 2


def test_add_and_concat():
    images = np.arange(4.0).reshape(1, 4, 1, 1)
    assert lowered("add", (4, 1, 1), inputs=3).forward([images] * 3)[0].reshape(-1).tolist() == [0, 3, 6, 9]
    joined = lowered("concat", (4, 1, 1), inputs=2).forward([images, images + 10])[0]
    assert joined.reshape(-1).tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


def test_dropout_keeps_share_scale_and_mask():
    layer = lowered("dropout", (10000,), rate=0.3)
    output, kept = layer.forward([np.ones((1, 10000))])
    survivors = output[output > 0]
    assert survivors.size / 10000 == pytest.approx(0.7, abs=0.02)
    assert survivors == pytest.approx(1 / 0.7)
    assert (layer.backward(kept, np.ones((1, 10000)))[0] == output).all()
    assert (layer.forward([np.ones((1, 10000))])[0] != output).any()  # a new mask every time


def test_cross_entropy_by_hand_and_far_from_zero():
    logits = np.array([[math.log(1.0), math.log(3.0)], [1000.0, 0.0]])
    loss, gradient = cross_entropy(logits, np.array([0, 1]))
    assert loss == pytest.approx((math.log(4.0) + 1000.0) / 2)
    assert gradient == pytest.approx(np.array([[-0.75, 0.75], [1.0, -1.0]]) / 2)
