"""Which layers' gradients to send together, chosen from times measured here.

Merged-gradient wait-free backpropagation: S. Shi, X. Chu, B. Li, "MG-WFBP: Efficient Data
Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019. An exchange of
M bytes costs a + b M. Waiting for the next layer's gradient delays a message; sending it
along saves the start-up a. So a layer is merged into the next one of the backward pass
when that one's gradient is ready less than a after the message could have begun.

One limit is ours: a message that is sent in pieces grows no further than one of them. Beyond it
nothing is saved, and the paper's rule, which has layers wait for as long as the wire is
expected to be busy, leaves it idle when backward takes longer than alone: it shares the
processor with the exchange.
"""

import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import torch

from stagebench.adapters.caffempi.exchange import Exchange, Pace
from stagebench.adapters.caffempi.memory import Host
from stagebench.adapters.caffempi.net import Flat, Group, Span
from stagebench.adapters.caffempi.transfer import Transfer

SMALL, LARGE = 1024, 1048576  # elements of the two test messages: 4 kB and 4 MB in float32
REPEATS = 5

Cost = NamedTuple("Cost", [("startup_s", float), ("seconds_per_byte", float)])
Plan = NamedTuple("Plan", [("groups", List[Group]), ("cost", Optional[Cost])])  # cost: where it was measured


class Link(NamedTuple):
    """How messages will travel."""

    comm: Any
    transfer: Transfer
    pace: Pace
    device: Any = "cpu"  # where gradients lie
    memory: Callable[[Flat], Host] = Host  # of a buffer there


def plan_for(
    overlap: str, spans: List[Span], link: Link, ready_s: Callable[[], List[float]], itemsize: int = 4
) -> Plan:
    """Return the groups of layers whose gradients leave together, in the order of backward; all ranks come here.

    `overlap` is the knob's value. `ready_s` measures when each layer's backward ends; it is asked only where needed.
    Rank 0 decides for all, as the measured times differ from rank to rank.
    """
    layers = [index for index in range(len(spans) - 1, -1, -1) if spans[index].begin < spans[index].end]
    cost = None
    if overlap == "none":
        groups = [layers]
    elif overlap == "layerwise":
        groups = [[index] for index in layers]
    else:
        cost = fitted(4 * SMALL, exchange_seconds(link, SMALL), 4 * LARGE, exchange_seconds(link, LARGE))
        times = ready_s()
        sizes = [itemsize * (spans[index].end - spans[index].begin) for index in layers]
        places = merged([times[index] for index in layers], sizes, cost, itemsize * link.pace.piece)
        groups = [[layers[place] for place in group] for group in places]
        groups, cost = link.comm.bcast((groups, cost))
    return Plan([group_of(group, spans) for group in groups], cost)


def merged(ready_s: Sequence[float], sizes: Sequence[int], cost: Cost, piece: float = float("inf")) -> List[List[int]]:
    """Return groups of layers 0, 1, ... in the order of backward, for the least time by the paper's rule.

    `ready_s`: seconds after backward began at which each layer's gradient is complete;
    `sizes`: bytes of each gradient; `piece`: bytes at which a group is large enough.
    """
    groups = [[0]]
    free = 0.0  # when the wire has finished the groups before
    for layer in range(1, len(sizes)):
        begin = max(free, ready_s[layer - 1])
        whole = sum(sizes[member] for member in groups[-1])
        if whole < piece and ready_s[layer] - begin < cost.startup_s:
            groups[-1].append(layer)
        else:
            free = begin + cost.startup_s + cost.seconds_per_byte * whole
            groups.append([layer])
    return groups


def group_of(layers: Sequence[int], spans: Sequence[Span]) -> Group:
    ordered = sorted(layers)
    return Group(ordered[0], ordered, Span(spans[ordered[0]].begin, spans[ordered[-1]].end))


def fitted(small: int, small_s: float, large: int, large_s: float) -> Cost:
    """Return start-up and seconds per byte from two messages' bytes and times; never below zero."""
    slope = max(0.0, (large_s - small_s) / (large - small))
    return Cost(max(0.0, small_s - slope * small), slope)


def exchange_seconds(link: Link, elements: int) -> float:
    """Return the seconds of the fastest of some exchanges of float32, posted and waited for as in training."""
    memory = link.memory(torch.zeros(elements, dtype=torch.float32, device=link.device))
    exchange = Exchange(memory, [Group(0, [0], Span(0, elements))], link.transfer, link.pace)
    found = []
    for _ in range(REPEATS):
        link.comm.Barrier()
        begin = time.perf_counter()
        exchange.run()
        found.append(time.perf_counter() - begin)
    exchange.close()
    return min(found)
