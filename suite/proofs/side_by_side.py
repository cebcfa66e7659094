"""Concurrent proofs: most are not timed, so as many run at once as the cores and the memory allow."""

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple, TypeVar

from stagebench.suite.contracts.case import Configuration
from stagebench.suite.worker.machine import cores, memory
from stagebench.workloads.graph import Graph

Made = TypeVar("Made")
Proving = Generator[bool, None, Made]  # works for a while at each `next`, and returns its result
# A rank's memory: FRAMEWORK bytes for the framework and its libraries, and TIMES the network in float64, which exists
# some nine times (AlexNet: 2.8 to 4.5 GB of 0.49): the initial weights, gradients, state, updates, and the oracle's.
FRAMEWORK, TIMES = 1 << 30, 10


class Share(NamedTuple):
    """A share of this machine: cores and memory."""

    cores: float
    memory: float  # bytes


NOTHING, ALL = Share(0, 0), Share(math.inf, math.inf)


def share(proven: Configuration, graph: Graph, here: bool, timing: bool = False) -> Share:
    """Return the share that a proof takes.

    A proof on a GPU, or one that may not run `here`, takes all: the free capacity is unknown there. So does one that is
    `timing` kernels: the load of concurrent proofs would decide the choice.
    """
    placement = proven.placement
    if timing or not here or placement.device != "cpu":
        return ALL
    devices = placement.device_count
    return Share(devices * placement.threads, devices * (FRAMEWORK + TIMES * graph.gradient_bytes(8)))


def room() -> Share:
    """Return the cores that this process may use, and the memory that is available now."""
    return Share(cores(), memory().available)


def side_by_side(wanted: Iterable[tuple[Share, Proving[Made]]], whole: Share) -> Iterator[Made]:
    """Yield each proof's result as soon as it is made.

    Proofs start in order, each as soon as its share fits into `whole` next to those that run, or when none runs. An
    exception of one ends all.
    """
    working: list[tuple[Share, Proving[Made]]] = []
    with ExitStack() as stack:
        for own, proving in wanted:
            stack.enter_context(closing(proving))
            while working and not _fit([own, *(taken for taken, _ in working)], whole):
                yield from _looked_at(working)
            working.append((own, proving))
        while working:
            yield from _looked_at(working)


def _fit(shares: Iterable[Share], whole: Share) -> bool:
    """Return whether neither the cores nor the memory of all shares together exceed the whole."""
    return all(sum(each) <= most for each, most in zip(zip(*shares, strict=True), whole, strict=True))


def _looked_at(working: list[tuple[Share, Proving[Made]]]) -> Iterator[Made]:
    """Resume each proof once; remove those that have ended, and yield their results."""
    for each in list(working):
        try:
            next(each[1])
        except StopIteration as end:
            working.remove(each)
            yield end.value
