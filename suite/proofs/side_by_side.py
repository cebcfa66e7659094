"""Proofs side by side: nobody times them, so as many at a time as have cores and memory of their own."""

import math
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TypeVar

import psutil

from suite.contracts.case import Configuration
from workloads.graph import Graph

Made = TypeVar("Made")
Proving = Generator[bool, None, Made]  # goes on when it is asked to, and returns what it has made
# Of a rank, beside its network: a framework and its libraries. The network is there in float64 some nine times over
# (AlexNet: 2.8 to 4.5 GB of 0.49): as it was given, in gradients, state and updates, and the oracle's.
FRAMEWORK, TIMES = 1 << 30, 10


@dataclass(frozen=True)
class Share:
    """Of this machine: cores and bytes of memory."""

    cores: float
    memory: float

    def and_(self, other: "Share") -> "Share":
        """Both."""
        return Share(self.cores + other.cores, self.memory + other.memory)

    def within(self, other: "Share") -> bool:
        """Whether it is no more, in both."""
        return self.cores <= other.cores and self.memory <= other.memory


NOTHING, ALL = Share(0, 0), Share(math.inf, math.inf)


def share(proven: Configuration, graph: Graph, here: bool) -> Share:
    """What a proof takes. One on a GPU, or that may not run `here`, is alone: nobody knows what there is."""
    placement = proven.placement
    if not here or placement.device != "cpu":
        return ALL
    devices = placement.device_count
    return Share(devices * placement.threads, devices * (FRAMEWORK + TIMES * graph.gradient_bytes(8)))


def room() -> Share:
    """What this process may use now."""
    return Share(len(os.sched_getaffinity(0)), psutil.virtual_memory().available)


def side_by_side(wanted: Iterable[tuple[Share, Proving[Made]]], whole: Share) -> Iterator[Made]:
    """What each makes, as it is made; begun in order, each as soon as there is room for it, or alone.

    What one raises ends all.
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
    """Let each go on once; what those made that have ended, which are taken out."""
    for each in list(working):
        try:
            next(each[1])
        except StopIteration as end:
            working.remove(each)
            yield end.value
