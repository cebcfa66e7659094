"""Measurements side by side, of which one works at a time: in turns, forth and back, so that drift hits all alike."""

from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing

import psutil

# What yields, each time that its ranks wait for their turn, whether they will wait again before their pass is over.
Turned = Generator[bool, None, None]


MOST = 8  # side by side: as many as a comparison usually has


class Room:
    """Whether there is room for another measurement beside those that were started since this was made."""

    def __init__(self) -> None:
        """Made before the first of them, for which there always is."""
        self._before, self._there = psutil.virtual_memory().available, 1

    def for_one_more(self) -> bool:
        """Twice as much memory must be free as those before it took in the mean."""
        free = psutil.virtual_memory().available
        found = self._there < MOST and free > 2 * (self._before - free) / self._there
        self._there += found
        return found


def take_turns(measurements: Iterable[Turned]) -> None:
    """Start each, as far as its first turn; give all of them turns while any wants more; then end each by itself.

    What one raises ends all.
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
