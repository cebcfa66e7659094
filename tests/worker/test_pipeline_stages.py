"""Cutting a network into stages, and along the branches of its blocks."""

import itertools

import pytest

from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.pipeline_stages import blocks, check_blocks, copies, crossing, stages, trunk
from stagebench.workloads.build import Builder
from stagebench.workloads.graph import Graph
from stagebench.workloads.networks import by_name
from tests.support import networks
from tests.support.errors import raising


def pairwise(items):
    return [tuple(items[place : place + 2]) for place in range(len(items) - 1)]


def macs(graph, begin, end):
    return sum(layer.macs for layer in graph.layers[begin:end])


def chain():
    """Six layers of very different work."""
    b = Builder("chain", (2, 8, 8), 5)
    x = "input"
    for index, out in enumerate((4, 16, 3, 8, 2)):
        x = b.graph.add("c%d" % index, "conv", (x,), out=out, kernel=3, pad=1)
    x = b.flatten("flat", x)
    b.head(b.dense("fc", x, 5))
    return b.graph


@pytest.mark.parametrize("one_value", [False, True])
@pytest.mark.parametrize("name", ["mnist_small", "alexnet", "googlenet", "resnet50"])
def test_stages_follow_each_other_and_are_even(name, one_value):
    graph = by_name()[name].graph()
    for count in (1, 2, 3):
        found = stages(graph, count, one_value)
        assert [each.begin for each in found] == [0] + [each.end for each in found[:-1]]
        assert found[-1].end == len(graph.layers)
        assert found[0].entering == ("input",)
        assert found[-1].leaving == tuple(head.layer for head in graph.heads)
        for one, two in pairwise(found):
            assert one.leaving == two.entering
    first, last = stages(graph, 2, one_value)
    assert max(macs(graph, *each[:2]) for each in (first, last)) < 0.65 * graph.macs


def test_no_other_cut_makes_the_heaviest_stage_lighter():
    graph = chain()

    def heaviest(places):
        return max(macs(graph, begin, end) for begin, end in pairwise([0, *places, len(graph.layers)]))

    for count in (1, 2, 3, 4):
        best = min(map(heaviest, itertools.combinations(range(1, len(graph.layers)), count - 1)))
        assert max(macs(graph, each.begin, each.end) for each in stages(graph, count)) == best


def test_of_equal_cuts_the_narrowest_is_taken_and_activations_stay_behind():
    b = Builder("narrow", (4, 8, 8), 5)
    x = b.graph.add("c1", "conv", ("input",), out=4, kernel=3, pad=1)
    x = b.relu("r2", b.max_pool("pool", b.relu("r", x), 2, 2))
    x = b.graph.add("c2", "conv", (x,), out=16, kernel=3, pad=1)
    b.head(b.dense("fc", b.flatten("flat", x), 5))
    _, last = stages(b.graph, 2)
    assert b.graph.layers[last.begin].name == "c2"
    assert last.entering == ("r2",)


@pytest.mark.parametrize("name", ["resnet50", "googlenet"])
def test_what_enters_a_stage_is_all_that_is_read_behind_its_cut(name):
    graph = by_name()[name].graph()
    made = {"input"}
    for stage in stages(graph, 4):
        known = set(stage.entering)
        assert known <= made
        for layer in graph.layers[stage.begin : stage.end]:
            assert set(layer.inputs) <= known
            known.add(layer.name)
        made = known
    assert {head.layer for head in graph.heads} <= made


def test_one_value_crosses_and_logits_leave_in_the_order_of_the_heads():
    graph = by_name()["googlenet"].graph()
    assert stages(graph, 4, one_value=True)[-1].entering == ("loss1_classifier", "inception_4c_output")
    assert len(crossing(graph, 5)) == 1
    graph = chain()
    graph.add_head(graph.add("early", "dense", (graph.add("flat1", "flatten", ("c1",)),), out=5))
    graph.heads.reverse()
    for count in (1, 2):
        assert stages(graph, count)[-1].leaving == ("early", "fc")


def test_every_stage_computes_something_and_too_few_cuts_are_refused():
    graph = by_name()["mnist_large"].graph()
    most = sum(layer.macs > 0 for layer in graph.layers)
    assert all(macs(graph, each.begin, each.end) for each in stages(graph, most))
    with raising(Unsupported, "mnist_large", most):
        stages(graph, most + 1)
    graph = by_name()["mnist_small"].graph()
    with raising(Unsupported, "mnist_small", 3):
        stages(graph, 4, one_value=True)


def test_layers_with_one_weight_stay_together():
    with raising(Unsupported, "gpt_char", 1, "'embedding' and 'head'"):
        stages(by_name()["gpt_char"].graph(), 2)
    graph = networks.text()
    _, last = stages(graph, 2)
    assert (graph.layers[last.begin].name, last.entering, last.leaving) == ("out", ("it", "again"), ("it", "out"))


def test_ranks_have_copies_of_a_weight_that_several_compute_with():
    graph = by_name()["gpt_char"].graph()
    cut = stages(graph, 4, one_value=True)
    assert [each.entering for each in cut[1:]] == [("block1_sum2",), ("block2_sum2",), ("block3_sum2",)]
    assert copies(graph, cut, 4) == {"embedding.weight": [0, 3]}
    assert copies(graph, cut, 2) == {"embedding.weight": [0, 1]}, "the ranks take two turns"
    assert copies(graph, cut, 3) == {}, "the first has both"
    assert copies(networks.text(), stages(networks.text(), 2), 2) == {}


def test_googlenet_has_nine_blocks_of_four_branches_the_heaviest_given_first():
    graph = by_name()["googlenet"].graph()
    found = blocks(graph, 4)
    assert len(found) == 9
    assert all(sorted(block.owners) == [0, 1, 2, 3] for block in found)
    for size, branch in zip((3, 5), found[0].branches[1:3]):
        names = ["inception_3a_%dx%d%s" % (size, size, end) for end in ("_reduce", "_reduce_relu", "", "_relu")]
        assert [layer.name for layer in graph.layers[branch.begin : branch.end]] == names
    assert {each.entering for each in found[1].branches} == {("inception_3a_output",)}
    wide, residual = blocks(networks.two_blocks(), 2)
    assert (wide.owners, residual.owners) == ((0, 1, 1), (0, 1))
    assert [block.owners for block in blocks(networks.two_blocks(), 3)] == [(0, 1, 2)], "the residual block has two"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["googlenet", "resnet50", "mnist_small", "blocks"])
def test_trunk_and_branches_are_the_network_once(name, count):
    graph = networks.two_blocks() if name == "blocks" else by_name()[name].graph()
    cut = blocks(graph, count)
    parts = sorted([each[:2] for each in trunk(graph, cut)] + [each[:2] for one in cut for each in one.branches])
    assert [begin for begin, _ in parts] == [0] + [end for _, end in parts[:-1]]
    assert parts[-1][1] == len(graph.layers)
    for block, after in zip(cut, trunk(graph, cut)[1:]):
        assert {name for each in block.branches for name in each.leaving} <= set(after.entering)
        assert set(block.owners) == set(range(count))


def test_what_reads_twice_drops_or_stands_apart_is_no_branch():
    b = Builder("none", (4, 8, 8), 5)
    x = b.conv("stem", "input", 4, 3, pad=1)
    x = b.add("shortcut", b.conv("only", x, 4, 3, pad=1), x)
    x = b.add("dropping", b.conv("one", x, 4, 1), b.dropout("drop", b.conv("other", x, 4, 1), 0.5))
    left, right = b.conv("left", x, 4, 1), b.conv("right", x, 4, 1)
    b.head(b.dense("side", b.flatten("between", x), 5), 0.3)
    b.head(b.dense("fc", b.flatten("flat", b.add("far", left, right)), 5))
    assert blocks(b.graph, 2) == []
    tied = Graph("tied", (6,), 4)
    x = tied.add("table", "embedding", ("input",), vocabulary=4, out=4)
    both = (tied.add("it", "tied", (x,), to="table", out=4), tied.add("own", "dense", (x,), out=4))
    tied.add_head(tied.add("sum", "add", both))
    assert blocks(tied, 2) == []


@pytest.mark.parametrize(("name", "count"), [("mnist_small", 2), ("resnet50", 3), ("googlenet", 5)])
def test_a_network_without_wide_blocks_is_refused_by_name(name, count):
    with raising(Unsupported, name, count):
        check_blocks(by_name()[name].graph(), count)
    check_blocks(by_name()["resnet50"].graph(), 2)
