"""The common clock and the schedule, on ranks whose clocks, stalls and barriers are made up: true times are known."""

import random

import pytest
import toy
import wires

from stagebench.suite.worker import common_clock
from stagebench.suite.worker.communicator import Communicator
from stagebench.suite.worker.samples import Sampler
from tests.support import trainers

TICK = 5e-8  # seconds that looking at a clock takes
EXCHANGE = 1e-5  # seconds from the last arrival to the end, on every rank
ANSWER, SKEW = 2e-6, 6e-5  # from the last arrival to the answer of a question, and how much later a rank may have it
STALL = 3e-4  # seconds that a rank is kept from running, once
AHEAD = (0.0, 3.7, 1234.5)  # how far each rank's clock is ahead of the truth, seconds
DRIFT = (0.0, 2e-5, -2e-5)


class Made(Communicator):
    """A rank in a time of its own: it passes when the rank looks at its clock, or waits for the others."""

    def __init__(self, setup, threads):
        super().__init__(setup)
        self._threads, self._random, self.true = threads, random.Random(setup.rank), 100.0 + setup.rank
        self.exchanges, self.stall_after = 0, None

    def start(self):
        pass

    def exchange(self, operation, count, dtype="float32"):
        raise NotImplementedError

    def clock(self):
        self.true += TICK
        return self.true * (1 + DRIFT[self.rank]) + AHEAD[self.rank]

    def maximum(self, value):
        found = self._threads.exchange(self.rank, (self.true, value))
        self.true = max(came for came, _ in found) + ANSWER + self._random.uniform(0.0, SKEW)
        if self.exchanges == self.stall_after:
            self.true, self.stall_after = self.true + STALL, None
        return max(each for _, each in found)

    def all_reduce(self):
        self.true = max(self._threads.exchange(self.rank, self.true)) + EXCHANGE
        self.exchanges += 1


def group(work):
    """What `work(rank's communicator)` gives on three ranks."""
    shared, world = wires.Threads(len(AHEAD)), len(AHEAD)
    return toy.together(world, lambda rank: work(Made(trainers.setup(rank=rank, world=world), shared)))


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch):
    monkeypatch.setattr(common_clock.time, "sleep", lambda seconds: None)


def test_clocks_that_differ_agree_within_the_error_that_is_told():
    def apart(made):
        clock = common_clock.CommonClock(made.rank, made.maximum, made.clock)
        clock.agree()
        return clock.now() - made.true, clock.error

    found = group(apart)
    assert len({error for _, error in found}) == 1
    for difference, error in found:
        assert abs(difference) <= error + TICK
        assert error < SKEW / 2  # the best of the questions, not the usual one


def test_a_sample_begins_when_the_ranks_leave_a_barrier_or_says_that_it_began_late():
    def sampled(made):
        return Sampler(made, 0.02, lambda **_: None).times("x", made.all_reduce)

    found = group(sampled)
    slowest = sorted(max(each) for each in zip(*(samples.seconds for samples in found)))
    assert slowest[len(slowest) // 2] == pytest.approx(EXCHANGE, abs=found[0].clock_error + 2 * TICK)
    assert found[0].clock_error < SKEW / 2  # which a barrier's exit would add nearly whole
    late = [max(each) for each in zip(*(samples.late for samples in found))]
    assert sum(each > 2 * TICK for each in late) < len(late) / 5

    def sampled(made):
        if made.rank == 1:
            made.stall_after = 50
        return Sampler(made, 0.02, lambda **_: None).times("x", made.all_reduce).late

    late = group(sampled)
    assert [each for each in late[1] if each > STALL / 2] == [pytest.approx(STALL, abs=STALL / 2)]
    assert max(late[0]) < STALL / 2


def test_on_one_kernel_the_clock_is_one():
    shared = wires.Threads(2)

    def live(rank):
        clock = common_clock.CommonClock(rank, wires.Wire(trainers.setup(rank=rank, world=2), shared).maximum)
        clock.agree()
        return clock.offset, clock.error

    assert toy.together(2, live) == [(0.0, 0.0)] * 2
