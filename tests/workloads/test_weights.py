"""Canonical weights: streams of their own, the initialisers' statistics, a golden digest."""

import math

import numpy as np
import pytest

from stagebench.workloads import weights
from stagebench.workloads.graph import Graph, Parameter
from stagebench.workloads.networks import by_name
from tests.support.errors import raising

# What NumPy 1.19 to 2.x draw: He's normal numbers, Caffe's uniform ones. A change means
# that frameworks on different NumPy no longer start from the same weights.
GOLDEN = {
    "mnist_small": "f18c2d94b324c0c158eb2e7fea9877a915a93b47deda62989e6d3c828e44e614",
    "googlenet": "43f68d2e230cc8588b4fca05fe73626cd576559692104005f77a0da424fdbd8c",
}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_golden_digest(name):
    assert weights.digest(dict(weights.initial(by_name()[name].graph()))) == GOLDEN[name]


def test_the_digest_sees_every_byte_and_a_tensor_depends_on_its_name_and_seed_alone():
    base = {"a": np.zeros((2, 3), np.float32), "b": np.ones(2, np.float32)}
    assert weights.digest(base) == weights.digest(dict(reversed(list(base.items()))))
    others = [
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"].reshape(3, 2), "b": base["b"]},
        {"a": base["a"], "b": np.array([1, 1.0000001], np.float32)},
    ]
    assert len({weights.digest(x) for x in [base, *others]}) == 4
    graph, reordered = Graph("a", (4,), 3), Graph("b", (4,), 3)
    graph.add("first", "dense", ("input",), out=3)
    graph.add("second", "dense", ("input",), out=3)
    reordered.add("new", "dense", ("input",), out=7)
    reordered.add("second", "dense", ("input",), out=3)
    reordered.add("first", "dense", ("input",), out=3)
    one, other = dict(weights.initial(graph)), dict(weights.initial(reordered))
    for name in one:
        assert (one[name] == other[name]).all()
    assert (one["first.weight"] != one["second.weight"]).all()
    assert (dict(weights.initial(graph, seed=5))["first.weight"] != one["first.weight"]).all()


def test_everything_is_float32_and_an_unknown_initialiser_is_refused():
    graph = by_name()["mnist_large"].graph()
    drawn = list(weights.initial(graph))
    assert [(name, tensor.shape) for name, tensor in drawn] == [(p.name, p.shape) for p in graph.parameters]
    assert {tensor.dtype for _, tensor in drawn} == {np.dtype(np.float32)}
    assert weights.draw(Parameter("x.bias", (3,), {"kind": "constant", "value": 0.2})).tolist() == [np.float32(0.2)] * 3
    with raising(ValueError, "x.weight", "xaviar"):
        weights.draw(Parameter("x.weight", (2, 2), {"kind": "xaviar"}))


def test_a_proof_s_attention_is_uneven_and_no_more_so_in_a_wide_network():
    def deviation(name):
        """Of the scores, of tokens that a norm has made alike."""
        graph = by_name()[name].graph()
        (layer,) = [layer for layer in graph.layers if layer.name == "block1_qkv"]
        return (weights.draw(layer.parameters[0]).std() * layer.sharpened) ** 2 * layer.input_shapes[0][1]

    assert deviation("gpt_char") == pytest.approx(0.8, abs=0.05)
    assert deviation("vit_ti16") == pytest.approx(1.2, abs=0.05) == deviation("gpt2")
    graph = by_name()["gpt_char"].graph()
    ratio = weights.for_proof(graph)["block1_qkv.weight"] / dict(weights.initial(graph))["block1_qkv.weight"]
    assert (ratio == 4.0).all()


SHAPE = (64, 32, 3, 3)
STDS = [
    ({"kind": "gaussian", "std": 0.01}, 0.01),
    ({"kind": "he"}, math.sqrt(2 / (32 * 9))),
    ({"kind": "he_fan_out"}, math.sqrt(2 / (64 * 9))),
    ({"kind": "xavier"}, math.sqrt(1 / (32 * 9))),
]


@pytest.mark.parametrize(("init", "std"), STDS, ids=lambda x: x["kind"] if isinstance(x, dict) else "")
def test_initialisers_statistics(init, std):
    drawn = weights.draw(Parameter("some.weight", SHAPE, init))
    count = drawn.size
    assert drawn.dtype == np.float32
    assert abs(drawn.mean()) < 5 * std / math.sqrt(count)
    assert drawn.std() == pytest.approx(std, rel=5 / math.sqrt(count))
    kurtosis = ((drawn / drawn.std()) ** 4).mean()
    if init["kind"] == "xavier":
        assert abs(drawn).max() <= math.sqrt(3 / (32 * 9))
        assert kurtosis == pytest.approx(1.8, abs=0.1)
    else:
        assert kurtosis == pytest.approx(3.0, abs=0.3)


def test_the_papers_initialisers():
    alexnet = {p.name: p.init for p in by_name()["alexnet"].graph().parameters}
    assert alexnet["conv1.weight"] == {"kind": "gaussian", "std": 0.01}
    assert alexnet["fc6.weight"] == {"kind": "gaussian", "std": 0.005}
    biases = [alexnet[x + ".bias"]["value"] for x in ("conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "fc8")]
    assert biases == [0.0, 0.1, 0.0, 0.1, 0.1, 0.1, 0.1, 0.0]
    assert {p.init["kind"] for p in by_name()["googlenet"].graph().parameters} == {"xavier", "constant"}
    resnet = {p.name: p.init for p in by_name()["resnet50"].graph().parameters}
    assert resnet["res2a_a.weight"] == {"kind": "he_fan_out"}
    assert resnet["res2a_a_bn.weight"] == {"kind": "constant", "value": 1.0}
