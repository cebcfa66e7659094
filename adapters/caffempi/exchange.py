"""Gradients handed over as each layer's backward ends, and brought forward while others compute.

A group of neighbouring layers is one message in the plan. Below it goes in pieces, some of
them on their way at once: on one machine small enough for a cache, over a wire large and
many enough to fill it while a step of each waits to be noticed. Each piece is updated as it
arrives: the last layers' gradients can be most of a network's, and make up one group.
"""

import os
import threading
import time
from collections import deque
from queue import Queue
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Optional, Tuple

from stagebench.adapters.caffempi.memory import Host
from stagebench.adapters.caffempi.net import Group, Span
from stagebench.adapters.caffempi.transfer import InFlight, Transfer

# Elements of a piece, pieces on their way at once, and how often a thread of its own looks after them
# (None: the training thread does, after each layer).
Pace = NamedTuple("Pace", [("piece", int), ("window", int), ("poll_s", Optional[float])])
NEAR = Pace(131072, 2, None)  # 512 kB in float32
FAR = Pace(262144, 16, 1e-3)

# A rank that gives way for longer than this shares its core with other processes, and had better sleep for moments than
# give away one time slice after the other.
CROWDED_S, PAUSE_S = 1e-4, 5e-5
HURRY = 0.1  # of a thread's usual pause, while the training thread has nothing to do but wait


class Exchange:
    """Sends the flat gradient buffer, group by group, in the order of backward."""

    def __init__(self, gradients: Host, groups: List[Group], transfer: Transfer, pace: Pace = NEAR) -> None:
        """`gradients` are all of them; `groups` are the same on every rank, in the order of backward."""
        self.groups = groups
        self.pace = pace
        self._transfer = transfer
        self._pieces = [pieces(group.span, pace.piece) for group in groups]
        self._gradients = gradients
        self._values = gradients.values
        self._by_trigger = {group.trigger: number for number, group in enumerate(groups)}
        self._waiting: Deque[Tuple[int, Span]] = deque()
        self._in_flight: List[Tuple[int, Span, InFlight]] = []
        self._started = 0  # pieces so far in this iteration
        self._arrived: "Queue[Any]" = Queue()  # (a group's number, a piece's span), or what stopped the thread
        self._driver = None if pace.poll_s is None else Driver(self._advance, pace.poll_s, self._arrived.put)

    def layer_done(self, layer: int) -> None:
        """Backward of this layer has ended: post what it completes, bring forward what is on its way."""
        number = self._by_trigger.get(layer)
        if number is not None:
            self._post(number)
        if self._driver is None:
            self._advance()

    def finish(self) -> Iterator[Span]:
        """Wait for everything and give each piece's span as it arrives, to be updated while others are on their way."""
        for _ in range(sum(map(len, self._pieces))):
            _, span = self._next_arrived()
            self._gradients.arrived(span)
            yield span
            if self._driver is None:
                self._advance()
        self._started = 0

    def run(self, timed: Optional[Callable[[Group, float], None]] = None) -> None:
        """Exchange everything; `timed` gets the seconds that each group arrived after the one before."""
        last = time.perf_counter()
        for number in range(len(self.groups)):
            self._post(number)
        missing = [len(spans) for spans in self._pieces]
        for _ in range(sum(missing)):
            number, span = self._next_arrived()
            self._gradients.arrived(span)
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
        self._gradients.leave(self._pieces[number])
        self._waiting.extend((number, span) for span in self._pieces[number])
        if self._driver is not None:
            self._driver.wake()

    def _next_arrived(self) -> Tuple[int, Span]:
        if self._driver is None:
            crowded = False
            while self._arrived.empty() and self._advance():
                if crowded:
                    time.sleep(PAUSE_S)
                    continue
                begin = time.perf_counter()
                os.sched_yield()
                crowded = time.perf_counter() - begin > CROWDED_S
            return self._arrived.get()  # type: ignore[no-any-return]
        self._driver.awaited = True
        found = self._arrived.get()
        self._driver.awaited = False
        if isinstance(found, BaseException):
            raise found
        return found  # type: ignore[no-any-return]

    def _advance(self) -> bool:
        """Start what waits, in the order of all ranks, and test what is on its way; False when all has arrived."""
        self._start()
        for entry in list(self._in_flight):
            number, span, piece = entry
            if piece.test():
                self._in_flight.remove(entry)
                self._start()
                self._arrived.put((number, span))
        return bool(self._in_flight or self._waiting)

    def _start(self) -> None:
        while self._waiting and len(self._in_flight) < self.pace.window:
            number, span = self._waiting[0]
            if not self._gradients.left(span):
                return  # nor do those behind it: the order is that of all ranks
            self._waiting.popleft()
            values = self._values[span.begin : span.end]
            self._in_flight.append((number, span, InFlight(self._transfer(values, self._started))))
            self._started += 1


def pieces(span: Span, most: int) -> List[Span]:
    """Cut a span into spans of at most `most` elements."""
    return [Span(begin, min(begin + most, span.end)) for begin in range(span.begin, span.end, most)]


class Driver:
    """A thread that brings messages forward while the training thread computes.

    MPI moves a message only while one of its functions runs, and a convolution may take longer
    than the operating system's buffers keep a wire busy. The operators release Python's lock,
    so a thread that looks every fraction of a millisecond costs little and leaves no gap.
    Between two looks it sleeps: it shares its core with the one that computes.
    """

    def __init__(self, advance: Callable[[], bool], poll_s: float, failed: Callable[[BaseException], Any]) -> None:
        """Start asleep; woken, call `advance` while it returns True. `failed` gets what it raised, once and for all."""
        self._advance = advance
        self._poll_s = poll_s
        self._failed = failed
        self.awaited = False  # whether the training thread waits
        self._work = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._work.set()

    def close(self) -> None:
        """Return when the thread has ended; what is on its way stays where it is."""
        self._ended = True
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._work.wait()
                self._work.clear()  # before looking: what is posted from now on wakes again
                while not self._ended and self._advance():
                    time.sleep(self._poll_s * HURRY if self.awaited else self._poll_s)
                if self._ended:
                    return
        except BaseException as error:
            self._failed(error)
