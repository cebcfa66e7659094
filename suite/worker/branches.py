"""Cutting a network along the branches of its blocks, for several ranks that hold it together.

A block lies between a value that several chains of layers read and the layer that joins their ends: an Inception block
has four branches, a residual block with a projection has two. Standard library only.
"""

from typing import List, NamedTuple, Set, Tuple

from suite.worker.contract import Unsupported
from suite.worker.pipeline_stages import Stage, crossing
from workloads.graph import Graph


class Block(NamedTuple):
    """The branches with one common input, side by side in the graph, directly before the layer that joins them."""

    branches: Tuple[Stage, ...]
    owners: Tuple[int, ...]  # the rank of each branch


def blocks(graph: Graph, count: int) -> List[Block]:
    """Return the blocks with a branch for each of `count` ranks, in the graph's order; a network may have none."""
    found = [_branches(graph, join) for join in range(len(graph.layers))]
    return [Block(each, _owners(graph, each, count)) for each in found if len(each) >= max(2, count)]


def check_blocks(graph: Graph, count: int) -> None:
    """Raise Unsupported for a network without a block that gives each of `count` ranks a branch."""
    if not blocks(graph, count):
        raise Unsupported(
            "%s has no block with a branch for each of %d ranks; ask for fewer ranks, or for a network with wider "
            "blocks, such as googlenet" % (graph.name, count)
        )


def trunk(graph: Graph, cut: List[Block]) -> List[Stage]:
    """Return the stages before, between and after the blocks; a layer that joins a block begins the stage after it."""
    heads = tuple(head.layer for head in graph.heads)
    begins = [0] + [block.branches[-1].end for block in cut]
    ends = [block.branches[0].begin for block in cut] + [len(graph.layers)]
    leaving = [crossing(graph, end) for end in ends[:-1]] + [heads]
    return [Stage(begin, end, crossing(graph, begin), left) for begin, end, left in zip(begins, ends, leaving)]


def _branches(graph: Graph, join: int) -> Tuple[Stage, ...]:
    """Return the branches of the block that a layer joins; () if it joins none.

    A branch that is the common input itself is no work and is omitted. All ranks drop the same units, so blocks contain
    no dropout.
    """
    layers = graph.layers
    read = [name for layer in layers for name in layer.inputs] + [head.layer for head in graph.heads]
    made = {layer.name: index for index, layer in enumerate(layers)}
    chains: List[List[int]] = []
    inputs: Set[str] = set()
    for name in layers[join].inputs:
        chain: List[int] = []
        while name in made and read.count(name) == 1 and _links(graph, made[name]):
            chain.insert(0, made[name])
            name = layers[made[name]].inputs[0]
        chains.append(chain)
        inputs.add(name)
    chains = sorted(chain for chain in chains if chain)
    in_a_row = [index for chain in chains for index in chain]
    if len(inputs) > 1 or in_a_row != list(range(join - len(in_a_row), join)):
        return ()
    entering = tuple(inputs)
    return tuple(Stage(chain[0], chain[-1] + 1, entering, (layers[chain[-1]].name,)) for chain in chains)


def _links(graph: Graph, index: int) -> bool:
    layer = graph.layers[index]
    return len(layer.inputs) == 1 and not layer.draws_random


def _owners(graph: Graph, branches: Tuple[Stage, ...], count: int) -> Tuple[int, ...]:
    """Return the rank of each branch; every rank gets one.

    The heaviest branch is assigned first, each to the rank with the least work so far.
    """
    work = [1 + sum(layer.macs for layer in graph.layers[each.begin : each.end]) for each in branches]
    loads, owners = [0] * count, [0] * len(branches)
    for index in sorted(range(len(work)), key=lambda each: -work[each]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += work[index]
    return tuple(owners)
