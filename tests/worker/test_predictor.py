"""Inference: a network cut down to its answer, and a predictor's proof, which names the query with a wrong answer."""

import numpy as np
import pytest

from stagebench.adapters.reference.inference import ReferencePredictor
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.predictor import prove
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from tests.support import networks, proofs, trainers
from tests.support.errors import raising

EXACT = 1e-6  # the oracle's files are float32
QUERIES = ["all samples", "one sample", "padded"]


def started(kind=ReferencePredictor, **changes):
    made = kind(trainers.setup(strategy="inference", precision="float64", **changes))
    made.start()
    return made


def tensors_of(graph):
    """Parameters and running statistics, none of them trivial."""
    stream = np.random.RandomState(3)
    statistics = {name: stream.uniform(0.5, 2.0, shape) for name, shape in graph.buffers}
    return {**networks.drawn(graph), **statistics}


def answer(graph, tensors, count=3):
    made = started()
    made.load(graph, tensors)
    return made.answer(np.random.RandomState(4).standard_normal((count, *graph.input_shape)))


def kinds(graph):
    return {layer.name: layer.kind for layer in graph.layers}


@pytest.mark.parametrize("fold", [False, True])
def test_what_the_answer_does_not_need_is_left_out_and_the_answer_stays(fold):
    graph = networks.two_heads()
    whole = tensors_of(graph)
    own, tensors = for_inference(graph, whole, fold)
    gone = {"fc1", "f1", "a"} | ({"c1_bn", "c2_bn"} if fold else set())
    assert set(kinds(own)) == set(kinds(graph)) - gone
    assert [(head.layer, head.weight) for head in own.heads] == [("fc2", 1.0)]
    assert [layer.attrs["rate"] for layer in own.layers if layer.kind == "dropout"] == [0.0]
    assert set(tensors) == {parameter.name for parameter in own.parameters} | {name for name, _ in own.buffers}
    assert bool(own.buffers) != fold
    np.testing.assert_allclose(answer(own, tensors), answer(graph, whole), rtol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_a_normalisation_is_folded_unless_its_convolution_has_another_reader(bias):
    b = Builder("readers", (2, 6, 6), 3)
    shared = b.conv("shared", "input", 4, 3, pad=1, bias=bias)
    kept = b.graph.add("kept", "batch_norm", (shared,))
    alone = b.graph.add("folded", "batch_norm", (b.conv("alone", kept, 4, 3, pad=1, bias=bias),))
    twice = b.graph.add("behind", "batch_norm", (alone,))  # a normalisation of no convolution
    b.head(b.dense("fc", b.flatten("flat", b.add("sum", shared, twice)), 3))
    whole = tensors_of(b.graph)
    own, tensors = for_inference(b.graph, whole, fold=True)
    assert set(kinds(b.graph)) - set(kinds(own)) == {"folded"}
    assert tensors["alone.weight"].dtype == tensors["alone.bias"].dtype == np.float64
    np.testing.assert_allclose(answer(own, tensors), answer(b.graph, whole), rtol=1e-12)


def test_the_owner_of_shared_weights_stays_with_all_that_it_reads():
    graph = Graph("shared", (6,), 9)
    x = graph.add("table", "embedding", ("input",), vocabulary=9, out=4)
    aside = graph.add("owner", "dense", (graph.add("before", "dense", (x,), out=4),), out=4)
    graph.add_head(graph.add("aux", "dense", (aside,), out=9), 0.3)
    graph.add_head(graph.add("out", "dense", (graph.add("again", "tied", (x,), to="owner", out=4),), out=9))
    own, kept = for_inference(graph, networks.drawn(graph), fold=True)
    assert set(kinds(graph)) - set(kinds(own)) == {"aux"}
    assert set(kept) == {parameter.name for parameter in own.parameters}


def test_the_reference_infers_on_one_processor_in_float64_alone():
    with raising(Unsupported, "cuda"):
        started(device="cuda")
    with raising(Unsupported, "float32"):
        ReferencePredictor(trainers.setup()).start()


# --- the proof ------------------------------------------------------------------------


class Folded(ReferencePredictor):
    """Folds its normalisations away."""

    def load(self, graph, tensors):
        super().load(*for_inference(graph, tensors, fold=True))


class WrongBias(Folded):
    """Forgets the mean of what it folds."""

    def load(self, graph, tensors):
        zeros = {name: np.zeros_like(each) for name, each in tensors.items() if name.endswith("running_mean")}
        super().load(graph, {**tensors, **zeros})


class OfItsBatch(ReferencePredictor):
    """Normalises with the statistics of its query."""

    def run(self, placed):
        values, _ = self._network._values(placed)
        return values[self._network.graph.heads[-1].layer]


class OneByOne(ReferencePredictor):
    """Computes a single sample in another way, which is wrong."""

    def run(self, placed):
        found = super().run(placed)
        return 1.001 * found if len(found) == 1 else found


class Flat(ReferencePredictor):
    """Returns the answers in a row."""

    def fetch(self, found):
        return found.reshape(-1)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("oracle"))
    return proofs.write_oracle(networks.two_heads(), 4, folder)


@pytest.mark.parametrize("kind", [ReferencePredictor, Folded])
def test_a_right_predictor_is_found_right_in_every_query(oracle, kind):
    proof = prove(started(kind), networks.two_heads(), 4, oracle)
    assert list(proof.errors) == ["predict"]
    assert list(proof.errors["predict"]) == QUERIES
    assert max(proof.errors["predict"].values()) < EXACT
    assert not proof.wrong
    assert not proof.factors


@pytest.mark.parametrize(
    ("kind", "named"), [(WrongBias, QUERIES), (OfItsBatch, QUERIES), (OneByOne, ["one sample"]), (Flat, QUERIES)]
)
def test_a_wrong_answer_is_found_by_the_name_of_its_query(oracle, kind, named):
    proof = prove(started(kind), networks.two_heads(), 4, oracle)
    assert [name for name, far in proof.errors["predict"].items() if not far < 100 * EXACT] == named
    shapes = [f"the output of predict, {name}" for name in named] if kind is Flat else []
    assert list(proof.wrong) == shapes


def test_a_single_sample_has_no_padded_query(tmp_path):
    graph = networks.perceptron()
    proof = prove(started(batch=1), graph, 1, proofs.write_oracle(graph, 1, tmp_path))
    assert list(proof.errors["predict"]) == ["all samples", "one sample"]
    assert max(proof.errors["predict"].values()) < EXACT
