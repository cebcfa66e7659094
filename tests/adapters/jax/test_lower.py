"""Every layer kind against NumPy's expressions of the reference, in float64, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adapters.jax import kernels
from adapters.jax.lower import Lowering, lower
from adapters.jax.machine import BY_NAME, Choices
from adapters.jax.net import Net, canonical, native
from adapters.reference.lower import Network
from tests.support.networks import drawn, one_layer
from workloads.graph import Graph
from workloads.kinds import KINDS

RNG = np.random.RandomState(3)
IMAGES = RNG.standard_normal((4, 6, 9, 9))
PLAIN = Choices(BY_NAME["float64"])
FOR_CPUS, COMPARED = PLAIN._replace(for_cpus=True, compared=True), PLAIN._replace(compared=True)

CASES = [
    ("conv", {"out": 4, "kernel": 3, "stride": 2, "pad": 1, "groups": 2}),
    ("conv", {"out": 4, "kernel": 1, "stride": 2, "bias": False}),
    ("conv", {"out": 4, "kernel": 2, "stride": 3, "pad": 2}),
    ("dense", {"out": 5}),
    ("relu", {}),
    ("max_pool", {"kernel": 3, "stride": 2, "pad": 1, "ceil": True}),
    ("max_pool", {"kernel": 2, "stride": 2}),
    ("max_pool", {"kernel": 2, "stride": 3, "ceil": True}),
    ("avg_pool", {"kernel": 3, "stride": 3, "pad": 1}),
    ("avg_pool", {"kernel": 3, "stride": 3, "pad": 1, "count_padding": True}),
    ("avg_pool", {"kernel": 4, "stride": 3, "pad": 1, "count_padding": True, "ceil": True}),
    ("avg_pool", {"kernel": 2, "stride": 2, "ceil": True}),
    ("avg_pool", {"kernel": 2, "stride": 2, "pad": 1, "count_padding": True}),
    ("lrn", {"size": 3, "alpha": 0.3, "k": 2.0}),
    ("lrn", {"size": 4, "alpha": 0.5, "beta": 0.6}),
    ("lrn", {"size": 13, "alpha": 0.5}),
    ("batch_norm", {"eps": 1e-3, "momentum": 0.75}),
    ("dropout", {"rate": 0.0}),
    ("concat", {}),
    ("add", {}),
    ("flatten", {}),
]


@pytest.fixture(autouse=True)
def _float64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def test_every_kind_has_a_case():
    assert {kind for kind, _ in CASES} == set(KINDS) == set(KINDS) & set(vars(Lowering))


@pytest.mark.parametrize("few", [1, kernels.FEW])
@pytest.mark.parametrize("ways", [PLAIN, FOR_CPUS], ids=["plain", "for CPUs"])
@pytest.mark.parametrize(("kind", "attrs"), CASES)
def test_a_kind_means_what_the_graph_says(monkeypatch, kind, attrs, ways, few):
    monkeypatch.setattr(kernels, "FEW", few)
    graph = one_layer(kind, attrs)
    weights, labels = drawn(graph), np.array([0, 3, 6, 1])
    theirs = Network(graph, weights)
    run = theirs.forward(IMAGES, labels, observe=True)
    theirs.backward(run, 1.0)
    net = Net(graph, ways)
    params = {name: native(tensor).astype(np.float64) for name, tensor in weights.items()}
    batch, key = (IMAGES.transpose(0, 2, 3, 1), labels), jax.random.key(1)
    stats = {name: value.astype(np.float64) for name, value in net.statistics().items()}
    (loss, (logits, new)), gradients = jax.value_and_grad(net.loss, has_aux=True)(params, stats, batch, key)
    np.testing.assert_allclose(logits, run.logits, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(loss, run.loss, rtol=1e-12)
    for name, expected in theirs.named("gradients").items():
        np.testing.assert_allclose(canonical(gradients[name]), expected, rtol=1e-9, atol=1e-10)
    for name, expected in theirs.named("statistics").items():
        np.testing.assert_allclose(new[name], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["relu", "max_pool", "avg_pool", "lrn", "batch_norm"])
@pytest.mark.parametrize("ways", [PLAIN, FOR_CPUS, COMPARED], ids=["plain", "for CPUs", "compared"])
def test_the_gradient_of_the_input_is_right_too(kind, ways):
    """Through a 1x1 convolution before the layer, whose own gradient needs it; equal values in the windows."""
    attrs = next(attrs for name, attrs in CASES if name == kind)
    graph = Graph("behind", (6, 9, 9), 7)
    x = graph.add("it", kind, (graph.add("before", "conv", ("input",), out=6, kernel=1),), **attrs)
    graph.add_head(graph.add("out", "dense", (graph.add("flat", "flatten", (x,)),), out=7))
    weights, labels = drawn(graph), np.array([0, 3, 6, 1])
    images = np.round(IMAGES)  # ties
    theirs = Network(graph, weights)
    theirs.backward(theirs.forward(images, labels, observe=True), 1.0)
    net = Net(graph, ways)
    params = {name: native(tensor).astype(np.float64) for name, tensor in weights.items()}
    batch = (images.transpose(0, 2, 3, 1), labels)
    gradients = jax.grad(net.loss, has_aux=True)(params, net.statistics(), batch, jax.random.key(1))[0]
    expected = theirs.named("gradients")["before.weight"]
    np.testing.assert_allclose(canonical(gradients["before.weight"]), expected, rtol=1e-9, atol=1e-10)


def test_in_use_running_statistics_normalise_and_stay():
    graph = one_layer("batch_norm", {"eps": 1e-3})
    weights, net = drawn(graph), Net(graph, FOR_CPUS)
    params = {name: native(tensor).astype(np.float64) for name, tensor in weights.items()}
    stats = {"it.running_mean": RNG.standard_normal(6), "it.running_var": RNG.random_sample(6) + 0.5}
    (logits,), after = net.forward(params, stats, IMAGES.transpose(0, 2, 3, 1), None)
    mean, variance, scale, shift = (
        tensor.reshape(6, 1, 1) for tensor in (*stats.values(), weights["it.weight"], weights["it.bias"])
    )
    values = (IMAGES - mean) / np.sqrt(variance + 1e-3) * scale + shift
    np.testing.assert_allclose(logits, values.reshape(4, -1) @ weights["out.weight"].T + weights["out.bias"], rtol=1e-9)
    assert all(after[name] is stats[name] for name in stats)


def test_the_first_of_equals_gets_the_gradient():
    gradient = jax.grad(lambda x: kernels.max_pool(x, 2, 2, ((0, 0), (0, 0))).sum())(jnp.ones((1, 4, 4, 1)))
    np.testing.assert_array_equal(gradient[0, :, :, 0], np.kron(np.ones((2, 2)), [[1, 0], [0, 0]]))


def test_dropout_keeps_the_expected_share_and_scale():
    graph = Graph("drop", (100, 10, 10), 2)
    graph.add("it", "dropout", ("input",), rate=0.3)
    apply = lower(graph.layers[0], PLAIN)
    dropped = np.asarray(apply({}, [jnp.ones((4, 10, 10, 100))], jax.random.key(1)))
    kept = dropped[dropped != 0]
    assert abs(len(kept) / dropped.size - 0.7) < 0.015  # five deviations of 40,000 draws: 0.0115
    np.testing.assert_allclose(kept, 1 / 0.7)
    assert not np.array_equal(dropped, apply({}, [jnp.ones((4, 10, 10, 100))], jax.random.key(2)))
