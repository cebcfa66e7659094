"""Every layer kind against the reference's layer, forward and backward, in float64."""

import numpy as np
import pytest

from adapters.cntk.lower import Lowering, overhang
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from adapters.cntk.net import Net
from suite.worker.contract import Batch
from tests.support import proofs
from tests.support.networks import drawn, one_layer
from workloads import kinds
from workloads.graph import Graph

RNG = np.random.RandomState(3)
IMAGES = RNG.standard_normal((4, 6, 9, 8)).astype(np.float32)
LABELS = np.array([0, 3, 6, 2])
WINDOWS = [
    {"kernel": kernel, "stride": stride, "pad": pad, "ceil": ceil}
    for kernel, stride, pad in [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 2), (2, 3, 1), (5, 3, 1)]
    for ceil in (False, True)
]
CASES = (
    [
        ("conv", {"out": 4, "kernel": 3, "stride": 2, "pad": 1, "groups": 2}),
        ("conv", {"out": 5, "kernel": 1, "bias": False}),
    ]
    + [("conv", {"out": 4, "kernel": 1, "stride": 2}), ("conv", {"out": 4, "kernel": 1, "pad": 1})]
    + [("conv", {"out": 4, "kernel": 2, "pad": 1}), ("conv", {"out": 4, "kernel": 5, "pad": 1, "stride": 2})]
    + [("conv", {"out": 6, "kernel": 1, "groups": 3}), ("conv", {"out": 4, "kernel": 3})]
    + [("max_pool", window) for window in WINDOWS]
    + [("avg_pool", dict(window, count_padding=count)) for window in WINDOWS for count in (False, True)]
    + [("lrn", {"size": size, "alpha": 0.3, "beta": beta, "k": 2.0}) for size in (3, 5, 4) for beta in (0.75, 0.5)]
    + [("batch_norm", {"eps": 1e-3, "momentum": momentum}) for momentum in (0.9, 0.75)]
    + [("dense", {"out": 5}), ("dense", {"out": 5, "bias": False}), ("dropout", {"rate": 0.0})]
    + [("relu", {}), ("concat", {}), ("add", {}), ("flatten", {})]
)
BEFORE = {"out": 6, "kernel": 1}  # its gradient tells the layer's own backward


def one_step(trainer, graph, weights):
    """Loss, gradients and what a step leaves."""
    trainer.build(graph, weights)
    trainer.forward(trainer.to_device(Batch(IMAGES, LABELS)))
    trainer.backward()
    gradients = trainer.gradients()
    trainer.update()
    return trainer.loss(), gradients, trainer.parameters()


def test_every_kind_has_a_case_and_a_method():
    assert {kind for kind, _ in CASES} == set(kinds.KINDS) == set(kinds.KINDS) & set(vars(Lowering))


@pytest.mark.parametrize("tuning", ["default", "tuned"])
@pytest.mark.parametrize(("kind", "attrs"), CASES, ids=lambda value: value if isinstance(value, str) else None)
def test_a_kind_means_what_the_graph_says(trainer, kind, attrs, tuning):
    graph = one_layer(kind, attrs, IMAGES.shape[1:], BEFORE)
    weights = drawn(graph)
    expected = one_step(proofs.reference(), graph, weights)
    ours = trainer(tuning=tuning, precision="float64", batch=4)
    found = one_step(ours, graph, weights)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    for theirs, own in zip(expected[1:], found[1:]):
        assert set(own) == set(theirs)
        for name in theirs:
            np.testing.assert_allclose(own[name], theirs[name], rtol=1e-9, atol=1e-11, err_msg=name)
    assert ours.macs() == graph.macs


def test_a_window_that_hangs_over_divides_by_what_counts():
    graph = Graph("pool", (1, 4, 4), 9)
    graph.add_head(
        graph.add(
            "flat",
            "flatten",
            (graph.add("it", "avg_pool", ("input",), kernel=3, stride=2, pad=1, ceil=True, count_padding=True),),
        )
    )
    # 4 + 2 * 1 padded cells; windows begin at -1, 1 and 3: the last one ends one beyond the padding
    np.testing.assert_allclose(overhang(graph.layers[0])[0, 0], [1, 1, 1.5])


def test_dropout_keeps_the_expected_share_and_scale():
    graph = Graph("drop", (100, 10, 10), 10000)
    graph.add_head(graph.add("flat", "flatten", (graph.add("it", "dropout", ("input",), rate=0.3),)))
    net = Net(graph, {}, np.float32, 1, lambda layer: 5, True)
    _, found = net.logits.forward(
        {net.images: np.ones((1, 100, 10, 10), np.float32)}, keep_for_backward={net.logits.output}
    )
    [values] = found.values()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((values == 0).mean() - 0.3) < 0.02


def test_a_constant_has_the_networks_type():
    # C.Constant(float64 array) is float32: the running statistics of a float64 network would stay as they began.
    graph = one_layer("batch_norm", {}, IMAGES.shape[1:], BEFORE)
    net = Net(graph, drawn(graph), np.float64, 4, lambda layer: 1, False)
    assert {np.dtype(held.tensor.dtype) for held in net.tensors.statistics.values()} == {np.dtype(np.float64)}
    assert C.Constant(np.zeros(1)).dtype == np.float32
