"""Measurements in turns, of which one works at a time: forth and back, so that drift affects all alike."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing

from stagebench.suite.worker.machine import memory

# A measurement; it yields each time that its ranks wait for their turn: True if they will wait again in this pass.
Turned = Generator[bool, None, None]


MOST = 8  # measurements in turns: as many as a comparison usually has


class Room:
    """The memory for measurements that run at the same time."""

    def __init__(self) -> None:
        """Create it before the first measurement starts."""
        self._before, self._started = memory().available, 1

    def for_one_more(self) -> bool:
        """Return True if twice the mean memory of the measurements started so far is free."""
        free = memory().available
        fits = self._started < MOST and free > 2 * (self._before - free) / self._started
        self._started += fits
        return fits


def take_turns(measurements: Iterable[Turned]) -> None:
    """Start each measurement up to its first turn; give turns while any needs more; then end them one after the other.

    An exception of one ends all.
    """
    with ExitStack() as stack:
        waiting = []
        for each in measurements:
            stack.enter_context(closing(each))
            waiting.append((each, next(each, None)))
        while any(more for _, more in waiting):
            waiting = [(each, next(each, None) if more else more) for each, more in reversed(waiting)]
        for each, more in waiting:
            while more is not None:
                more = next(each, None)
