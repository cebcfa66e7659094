"""Which layers' gradients to send together, chosen from measured times.

Merged-gradient wait-free backpropagation: S. Shi, X. Chu, B. Li, "MG-WFBP: Efficient Data
Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019. An exchange of
M bytes costs a + b M. Waiting for the next layer's gradient delays a message; sending it
along saves the start-up a. So a layer is merged into the next one of the backward pass
when that one's gradient is ready less than a after the message could have begun.

One limit is ours: a message that is sent in pieces grows no further than one of them. Beyond it
nothing is saved, and the paper's rule, which has layers wait for as long as the wire is
expected to be busy, leaves it idle when backward takes longer than alone: it shares the
processor with the exchange.

Oldest Python: 3.6.
"""

from typing import List, NamedTuple, Sequence

from adapters.caffempi.arena import Group, Span

Cost = NamedTuple("Cost", [("startup_s", float), ("seconds_per_byte", float)])


def merged(ready_s: Sequence[float], sizes: Sequence[int], cost: Cost, piece: float = float("inf")) -> List[List[int]]:
    """Groups of layers 0, 1, ... in the order of backward, for the least time by the paper's rule.

    `ready_s`: seconds after backward began at which each layer's gradient is complete;
    `sizes`: bytes of each gradient; `piece`: bytes at which a group is large enough.
    """
    groups: List[List[int]] = []
    current = [0]
    free = 0.0  # when the wire has finished the groups before
    for layer in range(1, len(sizes)):
        begin = max(free, ready_s[layer - 1])
        whole = sum(sizes[member] for member in current)
        if whole < piece and ready_s[layer] - begin < cost.startup_s:
            current.append(layer)
            continue
        free = begin + cost.startup_s + cost.seconds_per_byte * whole
        groups.append(current)
        current = [layer]
    return groups + [current]


def finished_s(ready_s: Sequence[float], sizes: Sequence[int], groups: List[List[int]], cost: Cost) -> float:
    """Seconds after backward began at which the last of these groups has been exchanged (the paper's recursion)."""
    free = 0.0
    for group in groups:
        begin = max(free, ready_s[group[-1]])
        free = begin + cost.startup_s + cost.seconds_per_byte * sum(sizes[member] for member in group)
    return free


def group_of(layers: Sequence[int], spans: Sequence[Span]) -> Group:
    """The group of some neighbouring layers, given by their indices in the graph."""
    ordered = sorted(layers)
    return Group(ordered[0], ordered, Span(spans[ordered[0]].begin, spans[ordered[-1]].end))


def fitted(small: int, small_s: float, large: int, large_s: float) -> Cost:
    """Start-up and seconds per byte from two messages' bytes and times; never below zero."""
    slope = max(0.0, (large_s - small_s) / (large - small))
    return Cost(max(0.0, small_s - slope * small), slope)
