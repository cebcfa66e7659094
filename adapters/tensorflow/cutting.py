"""Where a graph is cut into parts of consecutive layers.

Oldest Python: 3.6; standard library only.
"""

from typing import Dict, List, Tuple

from suite.worker.contract import Unsupported
from workloads.graph import Graph

Cost = Tuple[int, int]  # multiply-accumulates of the heaviest part, numbers of a sample that cross all cuts


def cuts(graph: Graph, parts: int) -> List[int]:
    """The layers at which the second and every later part begins.

    No other cut makes the heaviest part lighter, in multiply-accumulates, and of the equals
    none carries fewer numbers across. Unsupported when there are fewer layers than parts.
    """
    count = len(graph.layers)
    if parts > count:
        raise Unsupported("%s has %d layers, too few for %d devices; ask for fewer" % (graph.name, count, parts))
    before, sizes = [0], crossing_sizes(graph)
    for layer in graph.layers:
        before.append(before[-1] + layer.macs)
    best: Dict[int, Tuple[Cost, List[int]]] = {end: ((before[end], 0), []) for end in range(1, count + 1)}
    for part in range(2, parts + 1):
        best = {
            end: min(
                ((max(cost[0], before[end] - before[begin]), cost[1] + sizes[begin]), places + [begin])
                for begin, (cost, places) in best.items()
                if begin < end
            )
            for end in range(part, count + 1)
        }
    return best[count][1]


def crossing(graph: Graph, place: int) -> List[str]:
    """The layers (or "input") whose output is made before the layer `place` and read by it or later, or by the loss."""
    made = ["input"] + [layer.name for layer in graph.layers[:place]]
    read = {name for layer in graph.layers[place:] for name in layer.inputs} | {head.layer for head in graph.heads}
    return [name for name in made if name in read]


def crossing_sizes(graph: Graph) -> List[int]:
    """Numbers of a sample that cross a cut before each layer."""
    sizes = {"input": numbers(graph.input_shape)}
    sizes.update((layer.name, numbers(layer.shape)) for layer in graph.layers)
    return [sum(sizes[name] for name in crossing(graph, place)) for place in range(len(graph.layers))]


def numbers(shape: Tuple[int, ...]) -> int:
    """In a tensor of that shape."""
    product = 1
    for extent in shape:
        product *= extent
    return product
