"""The reference's trainer: the update rule, shards, the contract."""

import numpy as np
import pytest

from stagebench.suite.worker.contract import SGD, Adam, Unsupported
from stagebench.suite.worker.feed import share, synthetic
from stagebench.workloads import weights
from stagebench.workloads.graph import Graph
from tests.support import networks, trainers
from tests.support.errors import raising
from tests.support.trainers import by_strategy

reference = by_strategy("reference")

OPTIMISER = SGD(lr=0.1, momentum=0.5, weight_decay=0.25)


def trainer(optimiser=OPTIMISER, **changes):
    return reference(trainers.setup(**dict({"precision": "float64", "optimiser": optimiser}, **changes)))


def normalised():
    """A network whose batch normalisation makes shards differ from the whole batch."""
    graph = Graph("normalised", (2, 6, 6), 3)
    x = graph.add("conv", "conv", ("input",), out=4, kernel=3, bias=False)
    x = graph.add("flat", "flatten", (graph.add("relu", "relu", (graph.add("bn", "batch_norm", (x,)),)),))
    graph.add_head(graph.add("fc", "dense", (x,), out=3))
    return graph


def built(graph, **changes):
    made = trainer(**changes)
    made.start()
    made.build(graph, dict(weights.initial(graph)))
    return made


def test_three_updates_by_hand():
    """One weight, one input, two classes: everything follows from p, the share of class 0."""
    graph = Graph("line", (1,), 2)
    graph.add_head(graph.add("fc", "dense", ("input",), out=2, bias=False))
    made = trainer()
    made.build(graph, {"fc.weight": np.array([[2.0], [0.0]])})
    batch = synthetic(graph, 1, 0)._replace(inputs=np.array([[1.5]]), labels=np.array([0]))
    w, v = [2.0, 0.0], [0.0, 0.0]
    for _ in range(3):
        p = 1.0 / (1.0 + np.exp(1.5 * (w[1] - w[0])))
        made.step(made.to_device(batch))
        assert made.loss() == pytest.approx(-np.log(p), rel=1e-14)
        gradient = [1.5 * (p - 1.0), 1.5 * (1.0 - p)]
        v = [0.5 * v[i] + gradient[i] + 0.25 * w[i] for i in range(2)]
        w = [w[i] - 0.1 * v[i] for i in range(2)]
        assert made.parameters()["fc.weight"].reshape(-1) == pytest.approx(w, rel=1e-13)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_by_hand(decoupled):
    """Kingma and Ba's section 2 in its efficient order: epsilon stands beside sqrt(v), which is not corrected."""
    graph = Graph("line", (3,), 2)
    graph.add_head(graph.add("fc", "dense", ("input",), out=2, bias=False))
    rule = Adam(lr=0.01, beta1=0.9, beta2=0.99, epsilon=1e-2, weight_decay=0.25, decoupled=decoupled)
    made = trainer(rule)
    w = np.array([[2.0, 0.0, 1.0], [0.0, -1.0, 0.5]])
    batch = synthetic(graph, 1, 0)._replace(inputs=np.array([[1.5, -0.5, 0.25]]), labels=np.array([0]))
    made.build(graph, {"fc.weight": 2.0 * w})
    made.step(made.to_device(batch))
    made.build(graph, {"fc.weight": w})  # begins with a state of zeros, whatever was trained before
    m = v = np.zeros((2, 3))
    for t in range(1, 5):
        logits = w @ batch.inputs[0]
        p = np.exp(logits) / np.exp(logits).sum()
        made.step(made.to_device(batch))
        g = np.outer(p - [1.0, 0.0], batch.inputs[0]) + (0.0 if decoupled else 0.25) * w
        w = w - 0.01 * (0.25 if decoupled else 0.0) * w
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        w = w - 0.01 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-2)
        assert made.parameters()["fc.weight"] == pytest.approx(w, rel=1e-12)


def test_shards_are_the_mean_of_ranks_with_their_own_statistics():
    graph = normalised()
    batch = synthetic(graph, 8, 3)
    ranks = [built(graph) for _ in range(2)]
    for rank, alone in enumerate(ranks):
        alone.forward(alone.to_device(share(batch, rank, 4)))
        alone.backward()
    both = built(graph, batch=8, knobs={"shards": 2})
    both.forward(both.to_device(batch))
    both.backward()
    assert both.loss() == pytest.approx(np.mean([alone.loss() for alone in ranks]), rel=1e-14)
    assert (both.logits() == np.concatenate([alone.logits() for alone in ranks])).all()
    for name, gradient in both.gradients().items():
        mean = np.mean([alone.gradients()[name] for alone in ranks], axis=0)
        np.testing.assert_allclose(gradient, mean, rtol=1e-11, atol=1e-13)
    for role in ("running_mean", "running_var"):
        name = "bn." + role
        assert (both.parameters()[name] == ranks[0].parameters()[name]).all()
        assert (both.parameters()[name] != ranks[1].parameters()[name]).any()


def test_running_statistics_may_see_several_shards_in_a_row():
    """As microbatches pass through one network, or ranks keep their own and the first is asked."""
    graph = normalised()
    batch = synthetic(graph, 8, 3)
    alone = built(graph)
    for piece in range(2):
        alone.forward(alone.to_device(share(batch, piece, 4)))
    both = built(graph, batch=8, knobs={"shards": 2, "observed": 2})
    both.forward(both.to_device(batch))
    for role in ("running_mean", "running_var"):
        np.testing.assert_array_equal(both.parameters()["bn." + role], alone.parameters()["bn." + role])


def test_shards_differ_from_the_whole_batch():
    graph = normalised()
    batch = synthetic(graph, 8, 3)
    losses = []
    for shards in (1, 2):
        made = built(graph, batch=8, knobs={"shards": shards})
        made.forward(made.to_device(batch))
        losses.append(made.loss())
    assert abs(losses[0] - losses[1]) > 1e-6


def test_staged_and_native_are_the_same_training():
    graph = normalised()
    staged, native = built(graph), built(graph)
    batch = staged.to_device(synthetic(graph, 4, 0))
    for _ in range(2):
        trainers.staged(staged, batch)
        native.step(batch)
    for name, tensor in staged.parameters().items():
        assert (tensor == native.parameters()[name]).all()


def test_building_again_starts_again():
    graph = normalised()
    made = built(graph)
    batch = made.to_device(synthetic(graph, 4, 0))
    made.step(batch)
    once = made.parameters()
    made.build(graph, dict(weights.initial(graph)))
    made.step(batch)
    for name, tensor in made.parameters().items():
        assert (tensor == once[name]).all(), name


def test_evidence_is_not_changed_by_what_follows():
    graph = normalised()
    made = built(graph)
    batch = made.to_device(synthetic(graph, 4, 0))
    made.forward(batch)
    made.backward()
    gradients, parameters = made.gradients(), made.parameters()
    before = {name: tensor.copy() for name, tensor in dict(gradients, **parameters).items()}
    made.update()
    made.step(batch)
    assert all((tensor == before[name]).all() for name, tensor in dict(gradients, **parameters).items())
    assert set(gradients) == {p.name for p in graph.parameters}
    assert set(parameters) == set(gradients) | {name for name, _ in graph.buffers}


def test_counting_multiplications_changes_nothing():
    graph = normalised()
    made = built(graph)
    before = made.parameters()
    assert made.macs() == 4 * 4 * 4 * 2 * 9 + 3 * 64 == graph.macs
    assert all((tensor == before[name]).all() for name, tensor in made.parameters().items())


@pytest.mark.parametrize("shards", [1, 2])
def test_every_layer_has_its_times_and_its_moment(shards):
    made = trainer(knobs={"shards": shards})
    rows = [row for row in trainers.timed_layers(made, networks.two_heads()) if row.bytes]
    assert [row.ready_s for row in rows] == sorted((row.ready_s for row in rows), reverse=True)
    assert not made.gradients()


def test_a_batch_that_does_not_divide_is_refused():
    graph = normalised()
    made = built(graph, knobs={"shards": 3})
    with raising(ValueError, 4, 3):
        made.forward(made.to_device(synthetic(graph, 4, 0)))


@pytest.mark.parametrize("changes", [{"world": 2}, {"device": "cuda"}, {"precision": "float32"}])
def test_what_it_cannot_do_is_unsupported(changes):
    with raising(Unsupported, *changes.values()):
        trainer(**changes).start()


def test_it_says_what_decides_its_speed():
    joined = trainer().start()
    assert joined[:3] == (0, 1, "none")
    assert joined.versions["numpy"] == np.__version__
    assert joined.versions["blas"]


@pytest.mark.parametrize("bits", [8, 16])
def test_results_are_rounded_to_the_bits_that_are_asked_for(bits):
    graph = normalised()
    batch = synthetic(graph, 4, 1)
    exact, coarse = built(graph), built(graph, knobs={"bits": bits})
    for made in (exact, coarse):
        made.forward(made.to_device(batch))
        made.backward()
    off = np.abs(coarse.logits() - exact.logits()).max() / np.abs(exact.logits()).max()
    assert 2.0 ** -(bits + 4) < off < 2.0 ** -(bits - 4)
    significand = np.frexp(coarse.logits())[0] * 2.0**bits
    assert (significand == np.rint(significand)).all()
