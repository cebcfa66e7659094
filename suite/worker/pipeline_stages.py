"""The cutting of a network for several devices or ranks that hold it together. Standard library only.

Into stages of consecutive layers; or along the branches of its blocks. A block lies between a value that several chains
of layers read and the layer that joins their ends: an Inception block has four branches, a residual block with a
projection has two.
"""

from typing import Dict, List, NamedTuple, Set, Tuple

from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads.graph import Graph, size

# Least first: multiply-accumulates of the heaviest stage, numbers of a sample that cross all cuts, then late cuts
# (an activation stays with the layer that it follows).
Cost = Tuple[int, int, Tuple[int, ...]]


class Stage(NamedTuple):
    """A run of consecutive layers, and the values that cross its borders, in the order of their making."""

    begin: int  # index of the first layer
    end: int  # index after the last layer
    entering: Tuple[str, ...]  # layers, or "input"
    leaving: Tuple[str, ...]  # of the last stage: the heads' logits, in the heads' order


def stages(graph: Graph, count: int, one_value: bool = False) -> List[Stage]:
    """Cut the network into `count` stages, the heaviest as light as can be in multiply-accumulates.

    Of equal cuts, the narrowest are taken. Every stage computes something. With `one_value`, a network is cut only
    where a single value crosses (not counting the logits of heads that are done, which are small and travel along), and
    stages may have copies of a weight; else layers with a common weight stay together. Unsupported if the network has
    fewer stages.
    """
    if count == 1:
        return [Stage(0, len(graph.layers), crossing(graph, 0), crossing(graph, len(graph.layers)))]
    before = [0]
    for layer in graph.layers:
        before.append(before[-1] + layer.macs)
    spans = [] if one_value else _sharing(graph)
    places = [
        place
        for place in range(1, len(graph.layers))
        if (not one_value or _single(graph, place)) and not any(first < place <= last for first, last in spans)
    ]
    places = [0] + places + [len(graph.layers)]
    most = sum(before[end] > before[begin] for begin, end in zip(places, places[1:]))
    if count > most:
        where = " where one value crosses," if one_value else ""
        names = [f"{graph.layers[first].name!r} and {graph.layers[last].name!r}" for first, last in spans]
        tied = f" ({', '.join(names)} compute with one weight, so all layers between them stay together)" * bool(names)
        raise Unsupported(
            f"{graph.name} can be cut into {most} stages at most,{where} and {count} are asked for{tied}; ask for "
            "fewer stages, or fewer ranks or devices, or take a strategy that keeps networks whole"
        )
    sizes = {place: _numbers(graph, place) for place in places[1:-1]}
    borders = [0, *_cheapest(before, sizes, places, count), len(graph.layers)]
    return [Stage(begin, end, crossing(graph, begin), crossing(graph, end)) for begin, end in zip(borders, borders[1:])]


def _cheapest(before: List[int], sizes: Dict[int, int], places: List[int], count: int) -> List[int]:
    """Return the places of the cheapest cuts into `count` stages, by the work before each layer and what crosses."""
    # By the layer that comes next: the cost of the cheapest cuts into as many stages as have been taken so far.
    best: Dict[int, Cost] = {place: (before[place], 0, ()) for place in places[1:] if before[place]}
    for _ in range(count - 1):
        longer = {}
        for end in places[1:]:
            options = []
            for begin, (heaviest, crossed, later) in best.items():
                if begin < end and before[begin] < before[end]:
                    stage = before[end] - before[begin]
                    options.append((max(heaviest, stage), crossed + sizes[begin], (*later, -begin)))
            if options:
                longer[end] = min(options)
        best = longer
    return [-place for place in best[places[-1]][2]]


def exchanged_bytes(graph: Graph, cut: List[Stage], batch: int, itemsize: int) -> int:
    """Return the bytes that a device sends in a step, activations and their gradients: the mean over the stages."""
    return 2 * sum(_numbers(graph, stage.begin) for stage in cut[1:]) * batch * itemsize // len(cut)


def copies(graph: Graph, cut: List[Stage], ranks: int) -> Dict[str, List[int]]:
    """Return the ranks that compute with a weight, of each weight that several do; they take stages in turn."""
    holders: Dict[str, Set[int]] = {}
    for index, stage in enumerate(cut):
        for layer in graph.layers[stage.begin : stage.end]:
            for name in layer.roles.values():
                holders.setdefault(name, set()).add(index % ranks)
    return {name: sorted(found) for name, found in holders.items() if len(found) > 1}


def crossing(graph: Graph, place: int) -> Tuple[str, ...]:
    """Return the values that cross the border before layer number `place`, in the order of their making.

    They are made before it, and read by that layer, a later layer or the loss. After the last layer: the heads' logits.
    """
    heads = [head.layer for head in graph.heads]
    if place == len(graph.layers):
        return tuple(heads)
    read = set(heads)
    for layer in graph.layers[place:]:
        read.update(layer.inputs)
    made = ["input"] + [layer.name for layer in graph.layers[:place]]
    return tuple(name for name in made if name in read)


def _single(graph: Graph, place: int) -> bool:
    return len(set(crossing(graph, place)) - {head.layer for head in graph.heads}) == 1


def _numbers(graph: Graph, place: int) -> int:
    shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
    return sum(size(shapes[name]) for name in crossing(graph, place))


def _sharing(graph: Graph) -> List[Tuple[int, int]]:
    """Return the index of each layer that shares weights, after that of the layer that has them."""
    made = {layer.name: index for index, layer in enumerate(graph.layers)}
    return [
        (made[name.rpartition(".")[0]], index)
        for index, layer in enumerate(graph.layers)
        for name in layer.shares.values()
    ]


class Block(NamedTuple):
    """The branches with one common input, side by side in the graph, directly before the layer that joins them."""

    branches: Tuple[Stage, ...]
    owners: Tuple[int, ...]  # the rank of each branch


def blocks(graph: Graph, count: int) -> List[Block]:
    """Return the blocks with a branch for each of `count` ranks, in the graph's order; a network may have none."""
    found = []
    for join in range(len(graph.layers)):
        branches = _branches(graph, join)
        if len(branches) >= max(2, count):
            found.append(Block(branches, _owners(graph, branches, count)))
    return found


def check_blocks(graph: Graph, count: int) -> None:
    """Raise Unsupported for a network without a block that gives each of `count` ranks a branch."""
    if not blocks(graph, count):
        raise Unsupported(
            f"{graph.name} has no block with a branch for each of {count} ranks; ask for fewer ranks, or for a "
            "network with wider blocks, such as googlenet"
        )


def trunk(graph: Graph, cut: List[Block]) -> List[Stage]:
    """Return the stages before, between and after the blocks; a layer that joins a block begins the stage after it."""
    found = []
    begin = 0
    for block in cut:
        end = block.branches[0].begin
        found.append(Stage(begin, end, crossing(graph, begin), crossing(graph, end)))
        begin = block.branches[-1].end
    end = len(graph.layers)
    return [*found, Stage(begin, end, crossing(graph, begin), crossing(graph, end))]


def _branches(graph: Graph, join: int) -> Tuple[Stage, ...]:
    """Return the branches of the block that a layer joins; () if it joins none.

    A branch that is the common input itself is no work and is omitted. All ranks drop the same units, so blocks contain
    no dropout; all ranks add the same to a weight that layers share, so blocks contain none of these layers.
    """
    layers = graph.layers
    read = [name for layer in layers for name in layer.inputs] + [head.layer for head in graph.heads]
    made = {layer.name: index for index, layer in enumerate(layers)}
    sharing = {index for pair in _sharing(graph) for index in pair}
    chains: List[List[int]] = []
    inputs: Set[str] = set()
    for name in layers[join].inputs:
        chain: List[int] = []
        while name in made and read.count(name) == 1 and len(layers[made[name]].inputs) == 1:
            if layers[made[name]].draws_random or made[name] in sharing:
                break
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


def _owners(graph: Graph, branches: Tuple[Stage, ...], count: int) -> Tuple[int, ...]:
    """Return the rank of each branch; every rank gets one.

    The heaviest branch is assigned first, each to the rank with the least work so far.
    """
    work = [1 + sum(layer.macs for layer in graph.layers[each.begin : each.end]) for each in branches]
    loads = [0] * count
    owners = [0] * len(branches)
    for index in sorted(range(len(work)), key=lambda each: -work[each]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += work[index]
    return tuple(owners)
