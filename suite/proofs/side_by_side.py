"""Concurrent proofs: most are not timed, so as many run at once as the cores and the memory allow."""

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TypeVar

from suite.contracts.case import Configuration
from suite.worker.machine import cores, memory
from workloads.graph import Graph

Made = TypeVar("Made")
Proving = Generator[bool, None, Made]  # works for a while at each `next`, and returns its result
# A rank's memory: FRAMEWORK bytes for the framework and its libraries, and TIMES the network in float64, which exists
# some nine times (AlexNet: 2.8 to 4.5 GB of 0.49): the initial weights, gradients, state, updates, and the oracle's.
FRAMEWORK, TIMES = 1 << 30, 10


@dataclass(frozen=True)
class Share:
    """A share of this machine: cores and memory."""

    cores: float
    memory: float  # bytes

    def and_(self, other: "Share") -> "Share":
        """Return the sum of two shares."""
        return Share(self.cores + other.cores, self.memory + other.memory)

    def within(self, other: "Share") -> bool:
        """Return whether neither its cores nor its memory exceed the other's."""
        return self.cores <= other.cores and self.memory <= other.memory


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
            while working and not _taken(working).and_(own).within(whole):
                yield from _looked_at(working)
            working.append((own, proving))
        while working:
            yield from _looked_at(working)


def _taken(working: list[tuple[Share, Proving[Made]]]) -> Share:
    taken = NOTHING
    for own, _ in working:
        taken = taken.and_(own)
    return taken


def _looked_at(working: list[tuple[Share, Proving[Made]]]) -> Iterator[Made]:
    """Resume each proof once; remove those that have ended, and yield their results."""
    for each in list(working):
        try:
            next(each[1])
        except StopIteration as end:
            working.remove(each)
            yield end.value
