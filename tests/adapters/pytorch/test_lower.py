"""Every layer kind against torch's own expressions with the graph's words spelled out, in float64."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from adapters.pytorch.net import Net
from suite.worker.contract import Unsupported
from tests.support.errors import raising
from tests.support.networks import drawn, one_layer
from workloads import kinds
from workloads.graph import Graph

RNG = np.random.RandomState(3)
IMAGES = torch.from_numpy(RNG.standard_normal((4, 6, 9, 9)))


def lrn(x, size, alpha, beta, k):
    """The definition, channel by channel."""
    channels = x.shape[1]
    sums = [
        (x[:, max(0, c - size // 2) : min(channels, c + (size - 1) // 2 + 1)] ** 2).sum(1, keepdim=True)
        for c in range(channels)
    ]
    return x * (k + alpha / size * torch.cat(sums, 1)) ** -beta


def normalised(x, weights):
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    scale, shift = (weights["it." + role].view(1, -1, 1, 1) for role in ("weight", "bias"))
    return (x - mean) / (variance + 1e-3).sqrt() * scale + shift


CASES = {
    "conv": (
        {"out": 4, "kernel": 3, "stride": 2, "pad": 1, "groups": 2},
        lambda x, w: functional.conv2d(x, w["it.weight"], w["it.bias"], 2, 1, 1, 2),
    ),
    "relu": ({}, lambda x, w: x.clamp(min=0)),
    "max_pool": (
        {"kernel": 3, "stride": 2, "pad": 1, "ceil": True},
        lambda x, w: functional.max_pool2d(functional.pad(x, (1, 2, 1, 2), value=-1e9), 3, 2)[:, :, :5, :5],
    ),
    "avg_pool": (
        {"kernel": 3, "stride": 3, "pad": 1},
        lambda x, w: (
            functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 3)
            / functional.avg_pool2d(functional.pad(torch.ones_like(x), (1, 1, 1, 1)), 3, 3)
        ),
    ),
    "lrn": ({"size": 3, "alpha": 0.3, "k": 2.0}, lambda x, w: lrn(x, 3, 0.3, 0.75, 2.0)),
    "batch_norm": ({"eps": 1e-3}, normalised),
    "dropout": ({"rate": 0.0}, lambda x, w: x),
    "concat": ({}, lambda x, w: torch.cat([x, x], 1)),
    "add": ({}, lambda x, w: 2 * x),
    "flatten": ({}, lambda x, w: x.reshape(4, -1)),
    "dense": ({"out": 5}, lambda x, w: x.reshape(4, -1) @ w["it.weight"].T + w["it.bias"]),
}


def test_every_kind_has_a_case():
    assert set(CASES) == set(kinds.KINDS)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_kind_means_what_the_graph_says(kind, fast, layout):
    attrs, expression = CASES[kind]
    graph = one_layer(kind, attrs)
    weights = drawn(graph)
    net = Net(graph, weights, fast).to(torch.float64, memory_format=layout)
    ours = IMAGES.clone(memory_format=layout).requires_grad_()
    (logits,) = net(ours)
    tensors = {name: torch.from_numpy(values).double() for name, values in weights.items()}
    theirs = IMAGES.clone().requires_grad_()
    expected = expression(theirs, tensors).reshape(4, -1) @ tensors["out.weight"].T + tensors["out.bias"]
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    logits.sin().sum().backward()
    expected.sin().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [False, True])
def test_padding_counts_in_averages_only_when_asked(count):
    graph = one_layer("avg_pool", {"kernel": 2, "stride": 2, "pad": 1, "count_padding": count})
    net = Net(graph, drawn(graph), False)
    corner = net.layers[0](torch.ones(1, 6, 9, 9))[0, 0, 0, 0]
    assert corner == (0.25 if count else 1.0)


def test_running_statistics_follow_the_graphs_momentum_and_the_unbiased_variance():
    graph = one_layer("batch_norm", {"momentum": 0.75})
    net = Net(graph, drawn(graph), False).double()
    net(IMAGES)
    found = dict(net.tensors())
    torch.testing.assert_close(found["it.running_mean"], 0.25 * IMAGES.mean((0, 2, 3)))
    torch.testing.assert_close(found["it.running_var"], 0.75 + 0.25 * IMAGES.var((0, 2, 3), unbiased=True))


def test_dropout_keeps_the_expected_share_and_scale():
    graph = Graph("drop", (100, 10, 10), 2)
    graph.add_head(graph.add("out", "dense", (graph.add("f", "flatten", ("input",)),), out=2))
    graph.add("it", "dropout", ("input",), rate=0.3)
    net = Net(graph, drawn(graph), True)
    dropped = net.layers[-1](torch.ones(4, 100, 10, 10))
    kept = dropped[dropped != 0]
    assert abs(len(kept) / dropped.numel() - 0.7) < 0.015  # five deviations of 40,000 draws: 0.0115
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))
    assert not torch.equal(dropped, net.layers[-1](torch.ones(4, 100, 10, 10)))


@pytest.mark.parametrize("size", [1, 4, 5, 7, 13])
def test_fast_lrn_is_exact_also_where_the_window_is_wider_than_the_channels(size):
    attrs = {"size": size, "alpha": 0.5, "beta": 0.6, "k": 1.5}
    graph = one_layer("lrn", attrs)
    net = Net(graph, drawn(graph), fast=True)
    x = IMAGES[:1, :, :3, :3].clone().requires_grad_()
    torch.testing.assert_close(net.layers[0](x), lrn(x, size, 0.5, 0.6, 1.5))
    assert torch.autograd.gradcheck(net.layers[0], (x,))


def test_what_torch_cannot_pool_is_unsupported():
    graph = one_layer("max_pool", {"kernel": 2, "stride": 2, "pad": 2})
    with raising(Unsupported, "it", 2):
        Net(graph, drawn(graph), False)


def test_nothing_is_overwritten_that_is_read_again():
    """conv is read by relu and by add: relu must not work in place."""
    graph = Graph("shared", (6, 9, 9), 7)
    conv = graph.add("conv", "conv", ("input",), out=6, kernel=1)
    total = graph.add("sum", "add", (graph.add("relu", "relu", (conv,)), conv))
    graph.add_head(graph.add("out", "dense", (graph.add("flat", "flatten", (total,)),), out=7))
    weights = drawn(graph)
    (logits,) = Net(graph, weights, True).double()(IMAGES)
    w = {name: torch.from_numpy(values).double() for name, values in weights.items()}
    value = functional.conv2d(IMAGES, w["conv.weight"], w["conv.bias"])
    expected = (value.clamp(min=0) + value).flatten(1) @ w["out.weight"].T + w["out.bias"]
    torch.testing.assert_close(logits, expected)


def test_places_are_used_again():
    graph = Graph("chain", (6, 9, 9), 7)
    x = "input"
    for index in range(10):
        x = graph.add(f"relu{index}", "relu", (x,))
    graph.add_head(graph.add("out", "dense", (graph.add("flat", "flatten", (x,)),), out=7))
    assert Net(graph, drawn(graph), True)._size == 1
