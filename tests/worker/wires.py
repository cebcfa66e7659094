"""Communicators without a framework: numbers travel as text between threads, or between processes over a Meeting.

Oldest Python: 3.6.
"""

import json
import os
import threading

import numpy as np

from stagebench.suite.worker.communicator import Communicator, Exchange, Pending
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.meeting import Meeting


class Threads:
    """What a Meeting does, between threads of one process."""

    def __init__(self, world):
        self._barrier, self._values = threading.Barrier(world), [None] * world

    def exchange(self, rank, value):
        self._values[rank] = value
        self._barrier.wait(120)
        found = list(self._values)
        self._barrier.wait(120)  # nobody writes the next value before all have read
        return found

    def abort(self):
        self._barrier.abort()


class Text(Exchange):
    """Everything is exchanged; what an operation gives is taken out of it."""

    def __init__(self, wire, operation):
        self.wire, self.operation, self.runs = wire, operation, 0

    def fill(self, values):
        self.given = values

    def run(self):
        self.runs += 1
        every = np.array(self.wire.told(self.given.tolist()), dtype=np.float32)
        rank, world = self.wire.rank, len(every)
        self.taken = {
            "all-reduce": lambda: every.sum(axis=0),
            "broadcast": lambda: every[0],
            "point-to-point": lambda: every[0],
            "all-gather": every.ravel,
            "all-to-all": lambda: every.reshape(world, world, -1)[:, rank].ravel(),
            "reduce-scatter": lambda: np.split(every.sum(axis=0), world)[rank],
        }[self.operation]()

    def result(self):
        return self.taken


class Wire(Communicator):
    """Every operation, as the exchange that it is made of."""

    made_of = Text

    def __init__(self, setup, threads=None):
        super().__init__(setup)
        self._threads, self._meeting = threads, None

    def start(self):
        setup = self.setup
        if self._threads is None:
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            self._meeting = Meeting(setup.rank, setup.world, address)
        return Joined(setup.rank, setup.world, "text", {"wire": "1"})

    def told(self, value):
        text = json.dumps(value)
        found = self._threads.exchange(self.rank, text) if self._threads else self._meeting.exchange(text)
        return [json.loads(each) for each in found]

    def maximum(self, value):
        return max(self.told(value))

    def exchange(self, operation, count, dtype="float32"):
        return self.made_of(self, operation)

    def close(self):
        if self._meeting:
            self._meeting.close()


class Now(Pending):
    """Began and ended at once."""

    def test(self):
        return True

    def wait(self):
        pass


class Beginning(Text):
    """Has a non-blocking form, too."""

    def begin(self):
        self.run()
        return Now()


class BeginningWire(Wire):
    made_of = Beginning


class Idle(Text):
    """What it begins sends nothing, and leaves what was filled in."""

    def begin(self):
        self.taken = self.given
        return Now()


class IdleWire(Wire):
    made_of = Idle


class Tiring(Beginning):
    """What it begins sends nothing from the third time on."""

    begun = 0

    def begin(self):
        self.begun += 1
        return super().begin() if self.begun < 3 else Now()


class TiringWire(Wire):
    made_of = Tiring


class Mixed(Beginning):
    """What is begun takes the result of what was begun before it, and gives its own."""

    def begin(self):
        pending = super().begin()
        other, self.wire.before = self.wire.before, self
        if other:
            self.taken, other.taken = other.taken, self.taken
        return pending


class MixedWire(Wire):
    made_of, before = Mixed, None


class Stale(Text):
    """Right at first; later it forgets to exchange."""

    def run(self):
        if self.runs == 0:
            super().run()


class StaleWire(Wire):
    made_of = Stale


class Flipped(Text):
    """One number of one rank is off by one."""

    def run(self):
        super().run()
        self.taken = np.array(self.taken)
        if self.wire.rank == 1:
            self.taken[-1] += 1


class FlippedWire(Wire):
    made_of = Flipped
