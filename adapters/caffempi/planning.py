"""Measure what the merge rule needs on the real communicator, and agree on one plan.

Oldest Python: 3.6.
"""

import time
from typing import Any, Callable, List, NamedTuple, Optional

import numpy as np

from adapters.caffempi.arena import Group, Span
from adapters.caffempi.exchange import Exchange, Pace
from adapters.caffempi.merge import Cost, fitted, group_of, merged
from adapters.caffempi.transfer import Way

SMALL, LARGE = 1024, 1048576  # elements of the two test messages: 4 kB and 4 MB
REPEATS = 5

Plan = NamedTuple("Plan", [("groups", List[Group]), ("cost", Optional[Cost])])


def plan_for(
    overlap: str,
    spans: List[Span],
    comm: Any,
    way: Way,
    pace: Pace,
    ready_s: Callable[[], List[float]],
    itemsize: int = 4,
) -> Plan:
    """The groups of a way of overlapping, in the order of backward.

    `ready_s` measures when each layer's backward ends; it is asked only where needed.
    Rank 0 decides for all, as the measured times differ from rank to rank.
    """
    layers = [index for index in range(len(spans) - 1, -1, -1) if spans[index].begin < spans[index].end]
    cost = None
    if overlap == "none":
        indices = [layers]
    elif overlap == "layerwise":
        indices = [[index] for index in layers]
    else:
        cost = measured_cost(comm, way, pace)
        times = ready_s()
        sizes = [itemsize * (spans[index].end - spans[index].begin) for index in layers]
        grouped = merged([times[index] for index in layers], sizes, cost, itemsize * pace.piece)
        indices, cost = comm.bcast(([[layers[member] for member in group] for group in grouped], cost))
    return Plan([group_of(group, spans) for group in indices], cost)


def measured_cost(comm: Any, way: Way, pace: Pace) -> Cost:
    """Start-up and seconds per byte of an exchange here and now."""
    return fitted(4 * SMALL, seconds(comm, way, pace, SMALL), 4 * LARGE, seconds(comm, way, pace, LARGE))


def seconds(comm: Any, way: Way, pace: Pace, elements: int) -> float:
    """The fastest of some exchanges of so many numbers, posted and waited for as in training."""
    exchange = Exchange(np.zeros(elements, dtype=np.float32), [Group(0, [0], Span(0, elements))], way, pace)
    found = []
    for _ in range(REPEATS):
        comm.Barrier()
        begin = time.perf_counter()
        exchange.whole()
        found.append(time.perf_counter() - begin)
    exchange.close()
    return min(found)
