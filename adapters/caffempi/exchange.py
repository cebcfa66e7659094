"""Gradients handed over as each layer's backward ends, and brought forward while others compute.

A group of neighbouring layers is one message in the plan. Below it goes in pieces, some of
them on their way at once: on one machine small enough for a cache, over a wire large and
many enough to fill it while a step of each waits to be noticed. Each piece is updated as it
arrives: the last layers' gradients can be most of a network's, and make up one group.

Oldest Python: 3.6.
"""

import os
import time
from collections import deque
from queue import Queue
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from adapters.caffempi.arena import Group, Span
from adapters.caffempi.progress import Driver
from adapters.caffempi.transfer import Moving, Way

# Elements of a piece, pieces on their way at once, and how often a thread of its own looks after them
# (None: the training thread does, after each layer).
Pace = NamedTuple("Pace", [("piece", int), ("window", int), ("poll_s", Optional[float])])
NEAR = Pace(131072, 2, None)  # 512 kB in float32
FAR = Pace(262144, 16, 1e-3)

# Whoever gives way to others for longer than this shares a core with them, and had better sleep for moments than
# give away one time slice after the other.
CROWDED_S, PAUSE_S = 1e-4, 5e-5


class Exchange:
    """Sends the flat gradient buffer its way, group by group, in the order of backward."""

    def __init__(self, gradients: np.ndarray, groups: List[Group], way: Way, pace: Pace = NEAR) -> None:
        """`groups` are the same on every rank, in the order of backward."""
        self.groups, self.pace, self._way = groups, pace, way
        self._pieces = [pieces(group.span, pace.piece) for group in groups]
        self._gradients = gradients
        self._by_trigger = {group.trigger: number for number, group in enumerate(groups)}
        self._waiting: Deque[Tuple[int, Span]] = deque()
        self._moving: List[Tuple[int, Span, Moving]] = []
        self._started = 0  # pieces so far in this iteration
        self._arrived: "Queue[Any]" = Queue()  # (a group's number, a piece's span), or what stopped the thread
        self._driver = None if pace.poll_s is None else Driver(self._advance, pace.poll_s, self._arrived.put)

    def lap(self, layer: int) -> None:
        """Backward of this layer has ended: post what it completes, bring forward what is on its way."""
        number = self._by_trigger.get(layer)
        if number is not None:
            self._post(number)
        if self._driver is None:
            self._advance()

    def finish(self) -> Iterator[Span]:
        """Wait for everything and give each piece's span as it arrives, to be updated while others are on their way."""
        for _ in range(sum(map(len, self._pieces))):
            yield self._next_arrived()[1]
            if self._driver is None:
                self._advance()
        self._started = 0

    def whole(self, timed: Optional[Callable[[Group, float], None]] = None) -> None:
        """Exchange everything; `timed` gets the seconds that each group arrived after the one before."""
        last = time.perf_counter()
        for number in range(len(self.groups)):
            self._post(number)
        missing = [len(spans) for spans in self._pieces]
        for _ in range(sum(missing)):
            number, _ = self._next_arrived()
            missing[number] -= 1
            if timed and not missing[number]:
                now = time.perf_counter()
                timed(self.groups[number], now - last)
                last = now
        self._started = 0

    def close(self) -> None:
        """End the thread, if there is one; nothing may be on its way."""
        if self._driver is not None:
            self._driver.close()

    def _post(self, number: int) -> None:
        self._waiting.extend((number, span) for span in self._pieces[number])
        if self._driver is not None:
            self._driver.wake()

    def _next_arrived(self) -> Tuple[int, Span]:
        if self._driver is None:
            self._push_on()
            return self._arrived.get()  # type: ignore[no-any-return]
        self._driver.awaited = True
        found = self._arrived.get()
        self._driver.awaited = False
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def _push_on(self) -> None:
        """Until a piece has arrived."""
        crowded = False
        while self._arrived.empty() and self._advance():
            if crowded:
                time.sleep(PAUSE_S)
                continue
            begin = time.perf_counter()
            os.sched_yield()
            crowded = time.perf_counter() - begin > CROWDED_S

    def _advance(self) -> bool:
        """Start what waits, in the order of all ranks, and test what is on its way; False when all has arrived."""
        self._start()
        for entry in list(self._moving):
            number, span, moving = entry
            if moving.test():
                self._moving.remove(entry)
                self._start()
                self._arrived.put((number, span))
        return bool(self._moving or self._waiting)

    def _start(self) -> None:
        while self._waiting and len(self._moving) < self.pace.window:
            number, span = self._waiting.popleft()
            values = self._gradients[span.begin : span.end]
            self._moving.append((number, span, Moving(self._way(values, self._started))))
            self._started += 1


def pieces(span: Span, most: int) -> List[Span]:
    """A span cut into spans of at most so many elements."""
    return [Span(begin, min(begin + most, span.end)) for begin in range(span.begin, span.end, most)]
