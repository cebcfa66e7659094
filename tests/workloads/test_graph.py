"""Graphs: what is refused and how, the dictionary form, digests."""

import json

import pytest

from stagebench.workloads import kinds
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import BUILT_IN, by_name


def graph():
    made = Graph("g", (3, 8, 8), 4)
    made.add("c", "conv", ("input",), out=6, kernel=3)
    made.add("f", "flatten", ("c",))
    made.add("t", "tokens", ("input",), patch=2)
    return made


REFUSED = [
    ("c", "relu", ("input",), {}, r"graph 'g' has two layers named 'c'"),
    ("input", "relu", ("c",), {}, r"two layers named 'input'"),
    ("x", "relu", ("nowhere",), {}, r"layer 'x' reads 'nowhere', which no earlier layer writes"),
    ("x", "convolution", ("input",), {}, r"'x' has the unknown kind 'convolution'; known: add, attention, avg_pool, "),
    ("x", "conv", ("input",), {"out": 2, "kernel": 3, "padding": 1}, r"no attribute 'padding'; known: .*pad, stride"),
    ("x", "conv", ("input",), {"out": 2}, r"layer 'x' \(conv\) needs the attribute 'kernel'"),
    ("x", "dropout", ("input",), {}, r"needs the attribute 'rate'"),
    ("x", "conv", ("f",), {"out": 2, "kernel": 3}, r"'x' \(conv\): wants \(channels, height, width\), not \(216,\)"),
    ("x", "lrn", ("f",), {}, r"wants \(channels, height, width\)"),
    ("x", "dense", ("c",), {"out": 2}, r"'x' \(dense\): wants a flat input or tokens, not \(6, 6, 6\)"),
    ("x", "conv", ("input",), {"out": 4, "kernel": 3, "groups": 2}, r"2 groups do not divide 3 -> 4 channels"),
    ("x", "conv", ("input",), {"out": 2, "kernel": 9}, r"input \(3, 8, 8\) leaves nothing: \(2, 0, 0\)"),
    ("x", "tokens", ("input",), {"patch": 3}, r"patches of 3 x 3 do not divide an image of 8 x 8"),
    ("x", "tokens", ("f",), {"patch": 2}, r"'x' \(tokens\): wants \(channels, height, width\), not \(216,\)"),
    ("x", "layer_norm", ("f",), {}, r"'x' \(layer_norm\): wants tokens \(positions, width\), not \(216,\)"),
    ("x", "attention", ("t",), {"heads": 3}, r"3 heads do not divide queries, keys and values of 12 numbers"),
    ("x", "positions", ("t",), {"rows": 15}, r"16 tokens are more than the 15 positions of its table"),
    ("x", "select", ("t",), {"position": 16}, r"16 tokens have no position 16; the first is 0"),
    ("x", "batch_norm", ("t",), {}, r"'x' \(batch_norm\): takes no tokens, which \(16, 12\) are"),
    ("x", "concat", ("t", "t"), {}, r"'x' \(concat\): takes no tokens"),
    ("x", "add", ("input", "c"), {}, r"cannot add"),
    ("x", "concat", ("input", "c"), {}, r"cannot join"),
    ("x", "add", (), {}, r"'x' \(add\): wants inputs, not 0"),
    ("x", "relu", ("input", "c"), {}, r"'x' \(relu\): wants one input, not 2"),
    ("x", "conv", ("input",), {"out": 2.5, "kernel": 3}, r"'x' \(conv\) has out = 2\.5; it wants a whole number "),
    ("x", "conv", ("input",), {"out": 2, "kernel": 3, "bias": 0}, r"bias = 0; it wants true or false"),
    ("x", "dropout", ("input",), {"rate": 1.0}, r"rate = 1\.0; it wants a number from 0 to less than 1"),
    ("x", "dense", ("f",), {"out": 2, "init": {"weight": {"kind": "he", "std": 1}}}, r"an initialiser for each role"),
    ("x", "dense", ("f",), {"out": 2, "init": {"weight": {"kind": "gaussian"}}}, r"an initialiser for each role"),
]


@pytest.mark.parametrize(("name", "kind", "inputs", "attrs", "message"), REFUSED)
def test_a_bad_layer_is_refused_with_its_name(name, kind, inputs, attrs, message):
    with pytest.raises(ValueError, match=message):
        graph().add(name, kind, inputs, **attrs)


ODD = (None, [], {}, "x", "", -1, 0, 2.5, float("nan"), float("inf"), 10**30, 10**400, True, [[]], {"a": 1}, [-1, 2])


def places(value, path=()):
    """Every place in a JSON value but the root."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield path + (key,)
        for inner in places(each, path + (key,)):
            yield inner


@pytest.mark.parametrize("name", ["mnist_small", "resnet50", "googlenet"])
def test_a_description_with_an_odd_value_is_refused_or_a_network(name):
    """Whatever stands in a file: no other error, and nothing that no network can have."""
    whole, kinds_seen = json.dumps(by_name()[name].graph().to_dict()), set()
    for place in places(json.loads(whole)):
        layer = json.loads(whole)["layers"][place[1]]["kind"] if place[0] == "layers" and len(place) > 1 else ""
        alike = (layer,) + tuple("#" if isinstance(key, int) else key for key in place)
        if alike in kinds_seen:
            continue
        kinds_seen.add(alike)
        for odd in ODD:
            content = inner = json.loads(whole)
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = odd
            try:
                found = Graph.from_dict(content)
            except ValueError:
                continue
            assert 0 < found.macs < 10**30
            assert 0 < found.parameter_count < 10**30


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "pad", "ceil", "count"),
    [
        (55, 3, 2, 0, False, 27),
        (112, 3, 2, 0, False, 55),
        (112, 3, 2, 0, True, 56),
        (112, 3, 2, 1, False, 56),
        (4, 3, 2, 1, True, 3),
        (5, 2, 3, 1, True, 2),
        (2, 1, 3, 1, True, 1),
        (4, 2, 3, 1, True, 2),  # rounding up gives 3, the last would begin at 5, beyond the input
    ],
)
def test_pooled_extents(extent, kernel, stride, pad, ceil, count):
    assert kinds.pooled(extent, kernel, stride, pad, ceil) == count
    begins = [i * stride - pad for i in range(count)]
    assert begins[-1] < extent  # every window sees something of the input


@pytest.mark.parametrize("workload", BUILT_IN, ids=lambda workload: workload.name)
def test_the_dictionary_form_reads_back(workload):
    made = workload.graph()
    again = Graph.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again.to_dict() == made.to_dict()
    assert again.digest == made.digest
    assert [layer.shape for layer in again.layers] == [layer.shape for layer in made.layers]
    assert again.parameters == made.parameters


def test_a_head_of_the_wrong_width_and_a_bad_dictionary_are_refused():
    data = graph().to_dict()
    data["layers"][0]["attrs"]["kernal"] = 3
    with pytest.raises(ValueError, match="no attribute 'kernal'"):
        Graph.from_dict(data)
    with pytest.raises(ValueError, match=r"head 'f' has shape \(216,\), not \(4,\)"):
        graph().add_head("f")


def test_the_digest_tells_networks_apart():
    one, other = graph(), graph()
    assert one.digest == other.digest
    other.add("r", "relu", ("f",))
    assert one.digest != other.digest
    by_dropout = [Graph("g", (4,), 2) for _ in range(2)]
    for made, rate in zip(by_dropout, (0.5, 0.6)):
        made.add("d", "dropout", ("input",), rate=rate)
    assert by_dropout[0].digest != by_dropout[1].digest
    assert by_dropout[0].without_dropout().digest == by_dropout[1].without_dropout().digest


def test_layers_add_up_and_without_dropout_the_original_stays():
    made = graph()
    conv = made.layers[0]
    assert (conv.parameter_count, conv.macs, conv.gradient_bytes()) == (3 * 6 * 9 + 6, 6 * 36 * 27, 4 * 168)
    assert [p.name for p in made.parameters] == ["c.weight", "c.bias"]
    assert made.macs == conv.macs
    workload = next(w for w in BUILT_IN if w.name == "alexnet")
    made = workload.graph()
    before = made.digest
    clear = made.without_dropout()
    rates = [layer.attrs["rate"] for layer in clear.layers if layer.kind == "dropout"]
    assert rates == [0.0, 0.0]
    assert made.digest == before
    assert clear.parameters == made.parameters


def test_the_builders_words():
    b = Builder("b", (4, 6, 6), 3)
    x = b.lrn("n", b.conv_relu("c", "input", 4, 3, pad=1), size=3)
    y = b.conv_bn("d", "input", 4, 1)
    x = b.concat("cat", b.add("sum", x, y), b.max_pool("m", x, 3, 1, pad=1))
    b.head(b.dense("fc", b.dropout("drop", b.flatten("flat", b.avg_pool("a", x, 6, 1)), 0.5), 3), 0.5)
    found = [(layer.name, layer.kind) for layer in b.graph.layers]
    assert found == [
        ("c", "conv"),
        ("c_relu", "relu"),
        ("n", "lrn"),
        ("d", "conv"),
        ("d_bn", "batch_norm"),
        ("sum", "add"),
        ("m", "max_pool"),
        ("cat", "concat"),
        ("a", "avg_pool"),
        ("flat", "flatten"),
        ("drop", "dropout"),
        ("fc", "dense"),
    ]
    assert b.graph.heads == [("fc", 0.5)]
    assert "d.bias" not in [p.name for p in b.graph.parameters]
    assert [name for name, _ in b.graph.buffers] == ["d_bn.running_mean", "d_bn.running_var"]
