"""Cutting a network along the branches of its blocks."""

import pytest

from suite.worker.contract import Unsupported
from suite.worker.pipeline_stages import blocks, check_blocks, trunk
from tests.support import networks
from tests.support.errors import raising
from workloads.build import Builder
from workloads.networks import by_name


def branches_of(graph, block):
    return [[layer.name for layer in graph.layers[each.begin : each.end]] for each in block.branches]


def test_googlenet_has_nine_blocks_of_four_branches_the_heaviest_given_first():
    graph = by_name()["googlenet"].graph()
    found = blocks(graph, 4)
    assert len(found) == 9
    assert all(sorted(block.owners) == [0, 1, 2, 3] for block in found)
    assert branches_of(graph, found[0])[1:3] == [
        ["inception_3a_3x3_reduce", "inception_3a_3x3_reduce_relu", "inception_3a_3x3", "inception_3a_3x3_relu"],
        ["inception_3a_5x5_reduce", "inception_3a_5x5_reduce_relu", "inception_3a_5x5", "inception_3a_5x5_relu"],
    ]
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


@pytest.mark.parametrize(("name", "count"), [("mnist_small", 2), ("resnet50", 3), ("googlenet", 5)])
def test_a_network_without_wide_blocks_is_refused_by_name(name, count):
    with raising(Unsupported, name, count):
        check_blocks(by_name()[name].graph(), count)
    check_blocks(by_name()["resnet50"].graph(), 2)
