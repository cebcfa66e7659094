"""Where a network is cut into parts that follow each other.

Oldest Python: 3.6.
"""

from typing import Dict, List, Sequence, Tuple

from adapters.pytorch.net import Piece, whole
from suite.worker.contract import Unsupported
from workloads.graph import Graph


def parts_of(graph: Graph, count: int) -> List[Piece]:
    """As many pieces, of multiply-accumulates as even as whole layers allow; Unsupported where there are not as many.

    A cut stands where one value is alive (and logits of heads that are done, which are small and travel
    along), directly before layers that compute: so a pooled value crosses rather than what it was pooled from.
    """
    begins = cuttable(graph)
    if len(begins) < count:
        raise Unsupported(
            "%s can be cut into %d parts at most, where one value crosses, and %d are asked for; ask for fewer ranks "
            "(or, with 'hybrid', fewer stages)" % (graph.name, len(begins), count)
        )
    ends = begins[1:] + [len(graph.layers)]
    costs = [sum(layer.macs for layer in graph.layers[a:b]) for a, b in zip(begins, ends)]
    borders = [begins[index] for index in balanced(costs, count)] + [len(graph.layers)]
    return [piece(graph, begin, end) for begin, end in zip(borders, borders[1:])]


def piece(graph: Graph, begin: int, end: int) -> Piece:
    """Layers from `begin` to before `end`, with what must cross."""
    everything = whole(graph)
    leaving = everything.leaving if end == len(graph.layers) else alive(graph, end)
    return Piece(begin, end, alive(graph, begin) if begin else everything.entering, leaving)


def alive(graph: Graph, index: int) -> Tuple[str, ...]:
    """Values made before a layer and needed from it on, in the order of their making."""
    heads = {head.layer for head in graph.heads}
    needed = {name for layer in graph.layers[index:] for name in layer.inputs}
    made = ["input"] + [layer.name for layer in graph.layers[:index]]
    return tuple(name for name in made if name in needed or name in heads)


def cuttable(graph: Graph) -> List[int]:
    """Layers that a part may begin with, the first one among them; each part computes something."""
    heads = {head.layer for head in graph.heads}
    single = [i for i in range(1, len(graph.layers)) if len(set(alive(graph, i)) - heads) == 1]
    ends = single[1:] + [len(graph.layers)]
    return [0] + [a for a, b in zip(single, ends) if any(layer.macs for layer in graph.layers[a:b])]


def balanced(costs: Sequence[int], count: int) -> List[int]:
    """First indices of `count` runs of costs, the dearest run as cheap as can be."""
    best: Dict[int, Tuple[int, List[int]]] = {
        0: (0, [])
    }  # costs taken so far: the dearest run of them, where runs begin
    for _ in range(count):
        best = {
            end: min((max(dearest, sum(costs[begin:end])), [*begins, begin]) for begin, (dearest, begins) in before)
            for end in range(1, len(costs) + 1)
            for before in [[entry for entry in best.items() if entry[0] < end]]
            if before
        }
    return best[len(costs)][1]
