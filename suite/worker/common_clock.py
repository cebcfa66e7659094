"""A common clock for a group of ranks: rank 0's, estimated by the other ranks, with a bound on the error.

A collective question bounds the difference of two clocks without trusting the network to be symmetric: no rank has its
answer before every rank has asked. So rank 0 asked before this rank had the answer, and this rank asked before rank 0
continued with the next question; the narrowest bounds of several questions hold. (The best of n round trips: Cristian,
"Probabilistic clock synchronization", 1989. Schedules on a clock so agreed: Hunold and Carpen-Amarie, "Reproducible MPI
benchmarking is still not as easy as you think", IEEE TPDS 2016.)
"""

import contextlib
import hashlib
import os
import time
from typing import Callable

from stagebench.suite.worker.network import boot

TIME_NAMESPACE = "/proc/self/ns/time"  # a process in a namespace of its own may have its own monotonic clock

QUESTIONS = 20
ANSWERS, MARGIN = 4, 2e-5  # from a question to a start: this multiple of an answer's time, and these seconds more
NAP = 2e-4  # seconds before a time at which sleeping ends and watching the clock begins: a sleep may oversleep
DIGITS = 13  # hexadecimal, 52 bits: exact as float


class CommonClock:
    """The clock of rank 0 as one rank estimates it; all ranks call its methods at once, but `now` and `wait_for`."""

    def __init__(
        self, rank: int, maximum: Callable[[float], float], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`maximum` returns the largest of all ranks' values (0 or more); `clock` is this rank's, in seconds."""
        self._rank = rank
        self._maximum = maximum
        self._clock = clock
        self._one_kernel = is_one_kernel(maximum)
        self.offset = 0.0  # seconds to add to this rank's clock
        self.error = 0.0  # of `now`, on the rank that knows it least: half of the range that the questions left
        self._answer = 0.0  # seconds from asking to the answer, at best, on the rank that waits longest
        self.drift = 0.0  # the most that a rank's offset changed from one agreement to the next

    def agree(self) -> None:
        """Estimate the offset; repeat it before long: clocks drift apart by up to tens of microseconds a second."""
        low = asked = -float("inf")
        high = quickest = -low
        first = self._rank == 0
        for _ in range(2 if self._one_kernel else QUESTIONS):
            now = self._clock()
            theirs = self._maximum(now if first else 0.0)  # rank 0's clock when it asked
            answered = self._clock()
            low = max(low, theirs - answered)
            high = min(high, theirs - asked)
            quickest = min(quickest, answered - now)
            asked = now
        # On one kernel all processes read one clock, unless the bounds say otherwise.
        if self._one_kernel and self._maximum(float(not low <= 0.0 <= high)):
            self._one_kernel = False
            self.agree()
            return
        known = self._one_kernel or first
        offset, error = (0.0, 0.0) if known else ((low + high) / 2, (high - low) / 2)
        moved = abs(offset - self.offset) if self.error else 0.0
        self.offset, self.error, self._answer = offset, self._maximum(error), self._maximum(quickest)
        self.drift = max(self.drift, self._maximum(moved))

    def now(self) -> float:
        """Return the seconds on the common clock."""
        return self._clock() + self.offset

    def start(self) -> float:
        """Return a time that is the same on all ranks, soon, but not before all of them know it."""
        ahead = 2 * self.error + ANSWERS * self._answer + MARGIN
        return self._maximum(self.now() if self._rank == 0 else 0.0) + ahead

    def wait_for(self, at: float) -> float:
        """Return at the time `at`, with the delay in seconds (a clock's tick if all went well)."""
        return wait_until(at - self.offset, self._clock)


def wait_until(at: float, clock: Callable[[], float] = time.perf_counter, watched: float = NAP) -> float:
    """Return at a point of a clock, or at once if it has passed; with the delay in seconds.

    The clock is `watched` for the last seconds.
    """
    left = at - clock()
    if left > watched:
        time.sleep(left - watched)
    now = clock()
    while now < at:
        now = clock()
    return now - at


def is_one_kernel(maximum: Callable[[float], float]) -> bool:
    """Return whether all ranks run under one kernel, and in one time namespace.

    The largest of their marks is then the smallest, too.
    """
    mark = float(_kernel())
    limit = 16.0**DIGITS
    return maximum(mark) == limit - maximum(limit - mark) and mark > 0.0


def _kernel() -> int:
    """Return a number that identifies this kernel and this time namespace; 0 if the system does not identify them."""
    known = boot()
    with contextlib.suppress(OSError):
        known = known and known + os.readlink(TIME_NAMESPACE)
    return int(hashlib.sha256(known.encode()).hexdigest()[:DIGITS], 16) if known else 0
