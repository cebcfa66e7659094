"""Every kind's backward, and nets that join them, against autograd in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from adapters.caffempi.lower import attempt, lower
from workloads.build import Builder
from workloads.graph import Graph

SAMPLES, CLASSES = 3, 5


def one(kind: str, **attrs: Any) -> Callable[[], Graph]:
    """A net around one layer, with a convolution before it so that its input's gradient counts."""

    def build() -> Graph:
        b = Builder(kind, (3, 9, 8), CLASSES)
        x = b.graph.add("tested", kind, (b.conv("before", "input", 8, 3, pad=1),), **attrs)
        b.head(b.dense("fc", b.flatten("flat", x), CLASSES))
        return b.graph

    return build


def dense(bias: bool) -> Callable[[], Graph]:
    def build() -> Graph:
        b = Builder("dense", (3, 9, 8), CLASSES)
        x = b.graph.add("tested", "dense", (b.flatten("flat", b.conv("before", "input", 4, 3)),), out=7, bias=bias)
        b.head(b.dense("fc", x, CLASSES))
        return b.graph

    return build


def branches() -> Graph:
    """Residual and inception-like joins, rectifiers that may and that must not work in place, two heads."""
    b = Builder("branches", (3, 9, 8), CLASSES)
    x = b.conv("stem", "input", 6, 3, pad=1)
    left = b.relu("left", x)  # the stem's output is read below again
    right = b.graph.add("right_bn", "batch_norm", (b.conv("right", x, 6, 1, bias=False),))
    x = b.relu("sum_relu", b.add("sum", left, right, x))
    one = b.conv_relu("one", x, 4, 1)
    two = b.conv_relu("two", b.max_pool("pool", x, 3, 1, pad=1), 4, 3, pad=1)
    x = b.concat("joined", one, x, two, one)
    b.head(
        b.dense("aux", b.flatten("aux_flat", b.graph.add("ave", "avg_pool", (x,), kernel=3, stride=2)), CLASSES), 0.3
    )
    flat = b.flatten("flat", x)
    x = b.add("twice", b.relu("flat_relu", flat), b.dropout("nothing", flat, 0.0))
    b.head(b.dense("fc", x, CLASSES))
    return b.graph


GRAPHS = {
    "conv": one("conv", out=6, kernel=3, stride=2, pad=1),
    "conv-groups": one("conv", out=6, kernel=3, pad=1, groups=2, bias=False),
    "conv-point": one("conv", out=6, kernel=1),
    "conv-point-no-bias": one("conv", out=6, kernel=1, bias=False),
    "conv-point-stride": one("conv", out=6, kernel=1, stride=2),
    "dense": dense(True),
    "dense-no-bias": dense(False),
    "relu": one("relu"),
    "max_pool": one("max_pool", kernel=3, stride=2),
    "max_pool-ceil-pad": one("max_pool", kernel=3, stride=2, pad=1, ceil=True),
    "avg_pool": one("avg_pool", kernel=3, stride=2),
    "avg_pool-ceil-pad": one("avg_pool", kernel=3, stride=2, pad=1, ceil=True),
    "avg_pool-count": one("avg_pool", kernel=3, stride=2, pad=1, ceil=True, count_padding=True),
    "lrn": one("lrn", size=5, alpha=0.5),
    "lrn-other-power": one("lrn", size=3, alpha=0.5, beta=0.6, k=2.0),
    "lrn-even": one("lrn", size=4, alpha=0.5),
    "lrn-wider-than-channels": one("lrn", size=19, alpha=0.5),
    "batch_norm": one("batch_norm"),
    "branches": branches,
}


@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("name", GRAPHS)
def test_loss_and_gradients_are_autograds(name: str, channels_last: bool, judge: Any, far: Any) -> None:
    graph = GRAPHS[name]()
    stream = np.random.RandomState(3)
    weights = {p.name: stream.standard_normal(p.shape) for p in graph.parameters}
    images, labels = stream.standard_normal((SAMPLES, *graph.input_shape)), stream.randint(0, CLASSES, SAMPLES)
    net = lower(graph, channels_last, 1, torch.float64)
    net.arena.load(weights)
    x = torch.from_numpy(images)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    before = x.clone()
    net.forward(x, torch.from_numpy(labels))
    net.backward()
    loss, expected = judge(graph, weights, images, labels)
    assert net.loss() == pytest.approx(loss, rel=1e-12)
    found = net.arena.export(net.arena.gradients)
    assert {n: far(found[n], expected[n]) for n in expected} == pytest.approx(dict.fromkeys(expected, 0.0), abs=1e-11)
    assert torch.equal(x, before), "the caller's images were overwritten"
    assert net.macs() == graph.macs


@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("way", ["onednn", "product"])
@pytest.mark.parametrize("name", ["conv-point", "conv-point-no-bias", "dense", "dense-no-bias"])
def test_every_way_to_compute_a_layer_gives_the_same(name: str, way: str, channels_last: bool) -> None:
    (node,) = (layer for layer in GRAPHS[name]().layers if layer.name == "tested")
    usual, ours = (attempt(channels_last, node, each, SAMPLES)() for each in ("torch", way))
    assert len(ours) == len(usual)
    for a, b in zip(ours, usual, strict=True):
        assert (a - b).norm() < 1e-6 * b.norm()


def test_rectifiers_work_in_place_only_where_nobody_else_reads() -> None:
    net = lower(branches(), False, 1)
    inplace = {s.layer.name: s.layer.inplace for s in net.slots if s.layer.kind == "relu"}
    assert inplace == {"left": False, "sum_relu": True, "one_relu": True, "two_relu": True, "flat_relu": False}


def test_the_gradient_is_this_ranks_share_of_the_average() -> None:
    graph = GRAPHS["conv"]()
    weights = {p.name: np.random.RandomState(1).standard_normal(p.shape) for p in graph.parameters}
    images, labels = torch.randn(2, 3, 9, 8, dtype=torch.float64), torch.tensor([1, 4])
    found = []
    for world in (1, 4):
        net = lower(graph, False, world, torch.float64)
        net.arena.load(weights)
        net.forward(images, labels)
        net.backward()
        found.append(net.arena.export(net.arena.gradients)["tested.weight"])
    np.testing.assert_allclose(found[0], 4 * found[1], rtol=1e-12)


def test_running_statistics_move_by_the_unbiased_variance() -> None:
    b = Builder("bn", (4, 3, 3), CLASSES)
    b.head(b.dense("fc", b.flatten("flat", b.graph.add("bn", "batch_norm", ("input",), momentum=0.8)), CLASSES))
    net = lower(b.graph, True, 1, torch.float64)
    x = torch.randn(6, 4, 3, 3, dtype=torch.float64)
    net.forward(x.contiguous(memory_format=torch.channels_last), torch.zeros(6, dtype=torch.int64))
    flat = x.permute(1, 0, 2, 3).reshape(4, -1)
    buffers = net.buffers()
    torch.testing.assert_close(buffers["bn.running_mean"], 0.2 * flat.mean(1))
    torch.testing.assert_close(buffers["bn.running_var"], 0.8 + 0.2 * flat.var(1, unbiased=True))


def test_dropout_passes_gradients_through_its_own_mask() -> None:
    net = lower(one("dropout", rate=0.4)(), False, 1, torch.float64)
    layer = next(slot.layer for slot in net.slots if slot.layer.kind == "dropout")
    torch.manual_seed(0)
    x = torch.ones(4, 1000, dtype=torch.float64)
    y = layer.forward([x])
    (dx,) = layer.backward(torch.full_like(x, 3.0), False)
    assert set(y.unique().tolist()) == {0.0, 1 / 0.6}
    assert float((y == 0).double().mean()) == pytest.approx(0.4, abs=0.05)
    torch.testing.assert_close(dx, 3.0 * y)
