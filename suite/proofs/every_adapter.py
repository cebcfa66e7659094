"""The networks with which every adapter is proven, whatever is measured: every layer kind, and the behaviour.

A network that is measured has few kinds of layers, and dropout is left out of its proof. So `stagebench verify` and the
conformance suite prove a probe, too, and check on networks made for it what no oracle can show. There are three probes,
because an adapter may train convolutional networks and no transformers, or the other way round, and text is no image.
"""

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Case, Configuration
from stagebench.suite.plugin_errors import ask
from stagebench.suite.worker import behaviour
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.job import Behave
from stagebench.workloads.build import Builder, gaussian
from stagebench.workloads.catalogue import Optimiser, Workload
from stagebench.workloads.graph import Graph


def probe_graph() -> Graph:
    """3 x 20 x 18 images, 7 classes, two heads; no attribute is a framework's default, which could pass for it."""
    b = Builder("probe", (3, 20, 18), 7)
    x = b.conv("conv1", "input", 8, 5, stride=2, pad=2)  # no rectifier: padding by 0 would never win a maximum
    x = b.max_pool("pool1", b.lrn("norm1", x, size=5, alpha=0.3, beta=0.6, k=1.5), 3, 2, pad=1, ceil=True)
    left = b.conv("left", b.conv_relu("grouped", x, 12, 3, pad=1, groups=2), 12, 1, bias=False)
    left = b.graph.add("left_bn", "batch_norm", (left,), eps=7e-5, momentum=0.8)
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


def token_graph() -> Graph:
    """3 x 8 x 12 images, 7 classes, two heads: a transformer of two blocks, the second one causal.

    Its weights are large, so that attention is uneven and GELU bends; a token in the middle answers, which a mask
    hides from some and not from others.
    """
    b = Builder("probe_tokens", (3, 8, 12), 7, decay="matrices")
    add = b.graph.add
    x = b.dense("patches", add("tokens", "tokens", ("input",), patch=4), 12)
    x = add("class_token", "class_token", (x,), init=gaussian(0.3))
    x = add("positions", "positions", (x,), init=gaussian(0.3))
    x = b.block("whole", x, 12, 3, 1e-6, std=0.3)
    b.head(b.dense("side", add("mean", "mean", (x,)), 7), 0.3)
    x = add("norm", "layer_norm", (b.block("causal", x, 12, 2, 1e-5, True, 0.15),))
    b.head(b.dense("fc", add("middle", "select", (x,), position=3), 7))
    return b.graph


def text_graph() -> Graph:
    """8 of 11 tokens, each of which has a label; two heads, one of them tied to the embedding; unused positions."""
    b = Builder("probe_text", (8,), 11, decay="matrices")
    add = b.graph.add
    x = add("embedding", "embedding", ("input",), vocabulary=11, out=12, init=gaussian(0.3))
    x = b.block("causal", add("positions", "positions", (x,), rows=10, init=gaussian(0.3)), 12, 2, 1e-5, True, 0.3)
    b.head(b.dense("side", x, 11), 0.3)
    b.head(add("head", "tied", (add("norm", "layer_norm", (x,)),), to="embedding", out=11))
    return b.graph


RULE = Optimiser(0.05, 8, 0.9, 1e-3)
PROBE = Workload("probe", probe_graph, RULE, "digits", 8, 0.05, "stagebench.suite.proofs.every_adapter")
TOKENS = Workload("probe_tokens", token_graph, RULE, "digits", 8, 0.01, "stagebench.suite.proofs.every_adapter")
TEXT = Workload("probe_text", text_graph, RULE, "python-topics", 8, 0.01, "stagebench.suite.proofs.every_adapter")
PROBES = (PROBE, TOKENS, TEXT)
BEHAVIOUR = Workload("behaviour", behaviour.graph, RULE, "digits", 8, 0.05, "stagebench.suite.worker.behaviour")


def probes_of(graph: Graph) -> list[Workload]:
    """Return the probes that together have all kinds of a network's layers, the one with the most of them first."""
    found, left = list[Workload](), kinds_of(graph)
    for probe in sorted(PROBES, key=lambda each: -len(kinds_of(each.graph()) & kinds_of(graph))):
        kinds = kinds_of(probe.graph())
        found += [probe] if left & kinds else []
        left -= kinds
    return found or [PROBE]


def kinds_of(graph: Graph) -> set[str]:
    return {layer.kind for layer in graph.layers}


def probed(case: Case, adapter: Adapter, probe: Workload = PROBE) -> Case:
    """Return the case that proves a probe in a case's strategy and tuning; the rate changes where it may."""
    changing = Schedule(float(adapter.strategy(case).changing_rate))
    return case.on(workload=probe.name, graph_digest="", schedule=changing)


def behaving(proven: Configuration, adapter: Adapter, looks: list[str]) -> tuple[Configuration, Behave]:
    """Return the configuration, of one that proves, in which the behaviour shows, and the checks."""
    shown = proven.on(optimiser="sgd", lr=1e-5, momentum=0.0, weight_decay=0.0, clip_norm=0.0, schedule=Schedule())
    placement, held = shown.placement, ask(adapter, "model_parallel_size", shown)
    networks = placement.device_count // max(held, placement.devices)
    task = Behave(
        samples=shown.global_batch // networks,
        shares=placement.device_count // held // networks,
        looks=looks,
        stages=[stage for stage in adapter.strategy(shown).separable if stage in Behave(1, 1).stages],
    )
    return shown, task
