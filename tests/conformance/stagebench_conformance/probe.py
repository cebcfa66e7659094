"""Tiny networks: one of every layer kind and every attribute that frameworks disagree on, one of photographs."""

from suite.contracts.hooks import hookimpl
from suite.plugins import manager
from workloads.build import Builder
from workloads.catalogue import PHOTOGRAPHS, Optimiser, Workload
from workloads.graph import Graph

PICTURES = "probe-pictures"


def probe_graph() -> Graph:
    """3 x 20 x 18 images, 7 classes, two heads."""
    b = Builder("probe", (3, 20, 18), 7)
    x = b.conv_relu("conv1", "input", 8, 5, stride=2, pad=2)
    x = b.max_pool("pool1", b.lrn("norm1", x, size=5, alpha=0.3, beta=0.75, k=2.0), 3, 2, pad=1, ceil=True)
    left = b.conv_bn("left", b.conv_relu("grouped", x, 12, 3, pad=1, groups=2), 12, 1)
    right = b.conv("right", x, 12, 1)
    x = b.relu("sum_relu", b.add("sum", left, right))
    g = b.graph
    counted = g.add("counted", "avg_pool", (x,), kernel=3, stride=1, pad=1, count_padding=True)
    uncounted = g.add("uncounted", "avg_pool", (x,), kernel=3, stride=1, pad=1, count_padding=False)
    x = b.concat("joined", x, counted, uncounted)
    side = b.flatten("side_flat", b.max_pool("side_pool", x, 2, 2))
    b.head(g.add("side", "dense", (side,), out=7, bias=False), 0.3)
    # Its last windows hang over the padding, which counts, and beyond it, which does not.
    x = g.add("hanging", "avg_pool", (x,), kernel=3, stride=2, pad=1, ceil=True, count_padding=True)
    x = b.flatten("flat", g.add("last_pool", "avg_pool", (x,), kernel=2, stride=2, ceil=True))
    b.head(b.dense("fc2", b.dropout("drop", b.relu("fc1_relu", b.dense("fc1", x, 16)), 0.5), 7))
    return g


def pictures_graph() -> Graph:
    """3 x 24 x 24 images, 2 classes: a small network of photographs, for readers."""
    b = Builder(PICTURES, (3, 24, 24), 2)
    b.head(b.dense("fc", b.flatten("flat", b.max_pool("pool", b.conv_relu("conv", "input", 4, 3), 2, 2)), 2))
    return b.graph


class ProbePlugin:
    """Brings both as workloads."""

    @hookimpl
    def stagebench_workloads(self) -> list[Workload]:
        """The network of every layer kind, and that of photographs."""
        optimiser, how = Optimiser(0.05, 8, 0.9, 1e-3), PHOTOGRAPHS._replace(resize=28)
        return [
            Workload("probe", probe_graph, optimiser, "digits", 8, 0.05, "tests"),
            Workload(PICTURES, pictures_graph, optimiser, "imagenet-like", 8, 0.05, "tests", how),
        ]


def register() -> None:
    """Make the probe known to this process, once."""
    if not manager().has_plugin("conformance-probe"):
        manager().register(ProbePlugin(), "conformance-probe")
