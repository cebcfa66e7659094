"""One clock for a group of ranks: rank 0's, estimated by the others, with a bound on the error.

A collective question bounds the difference of two clocks without trusting the network to be symmetric: nobody has its
answer before everybody has asked. So rank 0 asked before this rank had the answer, and this rank asked before rank 0
went on to the next question; of several questions the narrowest bounds hold. (The best of n round trips: Cristian,
"Probabilistic clock synchronization", 1989. Schedules on a clock so agreed: Hunold and Carpen-Amarie, "Reproducible
MPI benchmarking is still not as easy as you think", IEEE TPDS 2016.)
"""

import contextlib
import hashlib
import os
import time
from typing import Callable

from suite.worker.network import boot

TIME_NAMESPACE = "/proc/self/ns/time"  # in one of its own a process may have its own monotonic clock

QUESTIONS = 20
ANSWERS, MARGIN = 4, 2e-5  # from a question to a start: so many times what an answer takes, and so many seconds
NAP = 2e-4  # seconds before a time at which sleeping ends and watching the clock begins: a sleep may oversleep
DIGITS = 13  # hexadecimal, 52 bits: exact as float


class CommonClock:
    """Rank 0's clock as one rank estimates it; every method but `now` and `wait_for` is called on all ranks at once."""

    def __init__(
        self, rank: int, maximum: Callable[[float], float], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`maximum` is over all ranks, of numbers that are not negative; `clock` is this rank's, in seconds."""
        self._rank, self._maximum, self._clock = rank, maximum, clock
        self._one_kernel = _is_one_kernel(maximum)
        self.offset = 0.0  # seconds to add to this rank's clock
        self.error = 0.0  # of `now` on the rank that knows it least: half of what the questions left open
        self._answer = 0.0  # seconds from asking to the answer, at best, on the rank that waits longest
        self.drift = 0.0  # the most that a rank's offset changed from one agreement to the next

    def agree(self) -> None:
        """Estimate the offset. Clocks drift apart by up to tens of microseconds a second: do it again before long."""
        low = asked = -float("inf")
        high = quickest = -low
        first = self._rank == 0
        for _ in range(2 if self._one_kernel else QUESTIONS):
            now = self._clock()
            theirs = self._maximum(now if first else 0.0)  # rank 0's clock when it asked
            answered = self._clock()
            low, high, quickest = max(low, theirs - answered), min(high, theirs - asked), min(quickest, answered - now)
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
        """Seconds on the common clock."""
        return self._clock() + self.offset

    def start(self) -> float:
        """A time that is the same on all ranks, soon, but not before all of them know it."""
        ahead = 2 * self.error + ANSWERS * self._answer + MARGIN
        return self._maximum(self.now() if self._rank == 0 else 0.0) + ahead

    def wait_for(self, at: float) -> float:
        """Return at that time; how late it was, in seconds (a clock's tick where all went well)."""
        clock, own = self._clock, at - self.offset
        left = own - clock()
        if left > NAP:
            time.sleep(left - NAP)
        now = clock()
        while now < own:
            now = clock()
        return now - own


def _is_one_kernel(maximum: Callable[[float], float]) -> bool:
    """Whether all ranks run under one kernel, and in one time namespace: the largest mark is then the smallest, too."""
    mark, limit = float(_kernel()), 16.0**DIGITS
    return maximum(mark) == limit - maximum(limit - mark) and mark > 0.0


def _kernel() -> int:
    """A number that tells this kernel, and this time namespace, from every other; 0 where the system does not tell."""
    known = boot()
    with contextlib.suppress(OSError):
        known = known and known + os.readlink(TIME_NAMESPACE)
    return int(hashlib.sha256(known.encode()).hexdigest()[:DIGITS], 16) if known else 0
