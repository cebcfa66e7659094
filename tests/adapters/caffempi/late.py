"""A device that is host memory: it copies between two buffers in order, as a GPU does, and later than it is asked."""

import time
from collections import deque

from stagebench.adapters.caffempi.memory import Host, Pinned

LOOKS = 3  # until a copy is made


class Copy:
    def __init__(self, there, here):
        self.there, self.here, self.looks, self.seconds = there, here, 0, 0.0


class LateLane:
    """In place of a Lane."""

    def __init__(self):
        self._asked = deque()

    def follow(self):
        """The other stream is the processor, which has computed what it was asked to."""

    def copy(self, there, here):
        self._asked.append(Copy(there, here))
        return self._asked[-1]

    def lead(self, copy):
        while not copy.seconds:
            self._make(self._asked.popleft())

    def done(self, copy):
        copy.looks += 1
        if copy.looks >= LOOKS:
            self.lead(copy)
        return copy.seconds > 0

    def seconds(self, copy):
        self.lead(copy)
        return copy.seconds

    def _make(self, copy):
        begin = time.perf_counter()
        copy.there.copy_(copy.here)
        copy.seconds = time.perf_counter() - begin


class Handed(Host):
    """The tensor itself, as MPI is given a GPU's."""

    def __init__(self, flat):
        self.values = flat


def staged(flat, returns=True):
    """In place of a trainer's `memory`."""
    return Pinned(flat, returns, (LateLane(), LateLane()))
