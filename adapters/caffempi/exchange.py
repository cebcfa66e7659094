"""Gradients handed to MPI as each layer's backward ends, and brought forward between layers.

A group of neighbouring layers is one message in the plan. Below it goes in pieces small
enough for a cache: Open MPI's all-reduce of 168 MB took 62 ms whole and 14 ms in pieces
of 1 MB (two ranks on one machine), because it works in temporary memory of the
message's size. MPI makes progress on a non-blocking collective only while one of its
functions runs, so `lap` tests after every layer.

Oldest Python: 3.6.
"""

import time
from collections import deque
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Optional

import numpy as np

from adapters.caffempi.arena import Span

PIECE = 131072  # elements: 512 kB in float32
WINDOW = 2  # pieces on their way at once: enough to keep the wire busy, few enough to stay in cache

# `trigger` is the layer whose backward completes the group: the first of `layers`, in the graph's order.
Group = NamedTuple("Group", [("trigger", int), ("layers", List[int]), ("span", Span)])


class Exchange:
    """Sums the flat gradient buffer over all ranks, group by group, in the order of backward."""

    def __init__(self, comm: Any, gradients: np.ndarray, groups: List[Group], transfer: Any) -> None:
        """`comm` carries nothing else; `groups` are the same on every rank, in the order of backward."""
        self._comm, self._transfer, self.groups = comm, transfer, groups
        self._pieces = [pieces(gradients, group.span) for group in groups]
        self._by_trigger = {group.trigger: number for number, group in enumerate(groups)}
        self._waiting: Deque[np.ndarray] = deque()
        self._moving: Deque[Any] = deque()
        self._started = 0  # pieces so far in this iteration

    def lap(self, layer: int) -> None:
        """Backward of this layer has ended: post what it completes, bring forward what is on its way.

        The last group is left to `finish`: no computation remains to hide it behind.
        """
        number = self._by_trigger.get(layer)
        if number is not None and number < len(self.groups) - 1:
            self._waiting.extend(self._pieces[number])
        self._advance()

    def finish(self) -> Iterator[Span]:
        """Wait for every group in turn and give its span, to be updated while others are on their way."""
        self._advance()
        done = 0
        for number, group in enumerate(self.groups[:-1]):
            done += len(self._pieces[number])
            while self._arrived() < done:
                self._wait_for_one()
            yield group.span
            self._advance()
        for piece in self._pieces[-1]:
            self._transfer.now(self._comm, piece, self._next())
        self._started = 0
        yield self.groups[-1].span

    def whole(self, timed: Optional[Callable[[Group, float], None]] = None) -> None:
        """Exchange everything, one group after the other; `timed` gets each group's seconds."""
        for number, group in enumerate(self.groups):
            begin = time.perf_counter()
            if number < len(self.groups) - 1:
                self._waiting.extend(self._pieces[number])
                self._advance()
                while self._moving:
                    self._wait_for_one()
            else:
                for piece in self._pieces[number]:
                    self._transfer.now(self._comm, piece, self._next())
            if timed:
                timed(group, time.perf_counter() - begin)
        self._started = 0

    def _next(self) -> int:
        self._started += 1
        return self._started - 1

    def _arrived(self) -> int:
        return self._started - len(self._moving)

    def _advance(self) -> None:
        """Test what is on its way, oldest first, and start what waits, in the order of all ranks."""
        while self._moving and self._moving[0].test():
            self._moving.popleft()
        for moving in self._moving:
            moving.test()
        self._start()

    def _wait_for_one(self) -> None:
        self._start()
        self._moving.popleft().wait()
        self._start()

    def _start(self) -> None:
        while self._waiting and len(self._moving) < WINDOW:
            self._moving.append(self._transfer(self._comm, self._waiting.popleft(), self._next()))


def pieces(gradients: np.ndarray, span: Span) -> List[np.ndarray]:
    """A span cut into views of at most PIECE elements."""
    return [gradients[begin : min(begin + PIECE, span.end)] for begin in range(span.begin, span.end, PIECE)]
