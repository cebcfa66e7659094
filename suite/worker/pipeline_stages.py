"""The cutting of a network into stages of consecutive layers, for several devices or ranks that hold it together.

Standard library only.
"""

from typing import Dict, List, NamedTuple, Tuple

from suite.worker.contract import Unsupported
from workloads.graph import Graph

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
    where a single value crosses (not counting the logits of heads that are done, which are small and travel along).
    Unsupported if the network has fewer stages.
    """
    before = [0]
    for layer in graph.layers:
        before.append(before[-1] + layer.macs)
    places = [place for place in range(1, len(graph.layers)) if not one_value or _single(graph, place)]
    places = [0] + places + [len(graph.layers)]
    most = sum(before[end] > before[begin] for begin, end in zip(places, places[1:]))
    if count > most:
        where = " where one value crosses," if one_value else ""
        raise Unsupported(
            "%s can be cut into %d stages at most,%s and %d are asked for; ask for fewer stages, or fewer ranks or "
            "devices" % (graph.name, most, where, count)
        )
    sizes = {place: _numbers(graph, place) for place in places[1:-1]}
    # By the layer that comes next: the cheapest cuts into as many stages as have been taken so far.
    best: Dict[int, Cost] = {place: (before[place], 0, ()) for place in places[1:] if before[place]}
    for _ in range(count - 1):
        longer = {}
        for end in places[1:]:
            options = [
                (max(heaviest, before[end] - before[begin]), crossed + sizes[begin], (*later, -begin))
                for begin, (heaviest, crossed, later) in best.items()
                if begin < end and before[begin] < before[end]
            ]
            if options:
                longer[end] = min(options)
        best = longer
    borders = [0] + [-place for place in best[len(graph.layers)][2]] + [len(graph.layers)]
    crossings = [crossing(graph, place) for place in borders[:-1]] + [tuple(head.layer for head in graph.heads)]
    return [Stage(*each) for each in zip(borders, borders[1:], crossings, crossings[1:])]


def exchanged_bytes(graph: Graph, cut: List[Stage], batch: int, itemsize: int) -> int:
    """Return the bytes that a device sends in a step, activations and their gradients: the mean over the stages."""
    return 2 * sum(_numbers(graph, stage.begin) for stage in cut[1:]) * batch * itemsize // len(cut)


def crossing(graph: Graph, place: int) -> Tuple[str, ...]:
    """Return the values that cross the border before layer number `place`, in the order of their making.

    They are made before it, and read by that layer, a later layer or the loss.
    """
    made = ["input"] + [layer.name for layer in graph.layers[:place]]
    read = {name for layer in graph.layers[place:] for name in layer.inputs} | {head.layer for head in graph.heads}
    return tuple(name for name in made if name in read)


def _single(graph: Graph, place: int) -> bool:
    return len(set(crossing(graph, place)) - {head.layer for head in graph.heads}) == 1


def _numbers(graph: Graph, place: int) -> int:
    shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
    total = 0
    for name in crossing(graph, place):
        product = 1
        for extent in shapes[name]:
            product *= extent
        total += product
    return total
