"""The task Communicate: one operation over its sizes, or the gradient tensors of a network.

Every timed call also runs, unchanged, on known numbers before its samples and after them, and the results are verified.
"""

import contextlib
from typing import Iterator, List, Optional

import numpy as np

from stagebench.suite.worker.case_parts import ITEMSIZES
from stagebench.suite.worker.communicator import Communicator, Exchange
from stagebench.suite.worker.contract import Call, Unsupported
from stagebench.suite.worker.job import Communicate
from stagebench.suite.worker.messages import ExchangeTimes, SkippedSizes
from stagebench.suite.worker.overlap import overlapped
from stagebench.suite.worker.patterns import check, given
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.samples import Sampler, rounded

PARTED = ("reduce-scatter", "all-gather", "all-to-all")
RUNS_TO_VERIFY = 2  # before the samples and after them
LONG = 2.0  # times the seconds of the samples: warm-up, barriers and verification do not explain more


def comm(communicator: Communicator, task: Communicate, outbox: Outbox) -> None:
    """Measure the task's operation, and send a message for every size or tensor."""
    measured = Measured(communicator, task.operation, task.seconds, outbox, task.dtype)
    if task.tensors:
        measured.tensors(task.counts)
    else:
        measured.sizes(task.counts, task.overlap, task.budget_s)


def divisible(operation: str, count: int, world: int) -> int:
    """Return `count`, rounded up to a multiple of `world` if the operation cuts a message into one part per rank."""
    return -(-count // world) * world if operation in PARTED else count


class Measured:
    """A measurement of one operation on one communicator."""

    def __init__(
        self, communicator: Communicator, operation: str, seconds: float, outbox: Outbox, dtype: str = "float32"
    ) -> None:
        """Take `seconds` for the samples of a message."""
        self._communicator, self._operation, self._outbox = communicator, operation, outbox
        self._dtype, self._itemsize = dtype, ITEMSIZES[dtype]
        self._sampler = Sampler(communicator, seconds, outbox.progress)
        self._seconds, self._turn = seconds, 0

    def sizes(self, counts: List[int], overlap: List[int], budget: float) -> None:
        """Time every count, as long as the next one is expected within the budget (seconds; 0: no limit).

        The other counts are reported as skipped.
        """
        spent, clock = 0.0, self._communicator.clock
        for number, count in enumerate(counts):
            begin = clock()
            self.single(count)
            last = self._communicator.maximum(clock() - begin)
            spent += last
            # The budget is for the sizes alone: some are overlapped, too, which must not cost another size.
            if count in overlap:
                self.overlap(count)
            rest = counts[number + 1 :]
            # If a size took longer than its samples should, the next one is expected to take longer by its size.
            growth = rest[0] / count if rest and last > LONG * self._seconds else 1.0
            if budget and rest and spent + last * growth > budget:
                self._outbox.send(SkippedSizes([each * self._itemsize for each in rest]))
                return

    def single(self, count: int) -> None:
        """Send a row for a message of `count` numbers."""
        count = self._divisible(count)
        exchange = self._exchange(count)
        limit = None if exchange.most is None else exchange.most - RUNS_TO_VERIFY
        name = f"{self._operation} of {count * self._itemsize} bytes"
        # A message that goes there and back keeps two ranks in step without a schedule.
        self._time("single", name, exchange.run, [exchange], [count], self._operation != "point-to-point", limit)

    def overlap(self, count: int) -> None:
        """Send a row for a message of `count` numbers during computation; none without a non-blocking form."""
        count = self._divisible(count)
        exchange = self._exchange(count)

        def begun() -> None:  # with all calls that are made during computation
            pending = exchange.begin()
            pending.test()
            pending.wait()

        with contextlib.suppress(Unsupported):
            with self._verified(begun, [exchange], [count]):
                times = overlapped(self._communicator, exchange, self._sampler, self._operation, count * self._itemsize)
            self._outbox.send(times)

    def tensors(self, counts: List[int]) -> None:
        """Time every different tensor alone, all in a row (blocking, then begun together), and all as one buffer."""
        counts = [self._divisible(count) for count in counts]
        for count in sorted(set(counts)):
            self.single(count)
        exchanges = [self._exchange(count) for count in counts]

        def in_a_row() -> None:
            for exchange in exchanges:
                exchange.run()

        def together() -> None:
            for pending in [exchange.begin() for exchange in exchanges]:
                pending.wait()

        self._time("row", "all tensors in a row", in_a_row, exchanges, counts)
        with contextlib.suppress(Unsupported):
            self._time("together", "all tensors together", together, exchanges, counts)
        del exchanges[:]
        self.single(sum(counts))

    def _time(
        self,
        kind: str,
        name: str,
        run: Call,
        exchanges: List[Exchange],
        counts: List[int],
        scheduled: bool = True,
        most: Optional[int] = None,
    ) -> None:
        """Send a row for `run`, which makes all the exchanges; without a schedule they go there and back."""
        with self._verified(run, exchanges, counts):
            samples = self._sampler.times(name, run, scheduled, most)
        seconds = rounded(samples.seconds if scheduled else [each / 2 for each in samples.seconds])
        size, late = sum(counts) * self._itemsize, rounded(samples.late)
        error = samples.clock_error if late else None
        self._outbox.send(ExchangeTimes(kind, self._operation, size, len(counts), seconds, late, error))

    @contextlib.contextmanager
    def _verified(self, run: Call, exchanges: List[Exchange], counts: List[int]) -> Iterator[None]:
        """Verify `run` before and after what is timed within, on zeros: sums in place stay zero."""
        self._verify(run, exchanges, counts)
        world = self._communicator.setup.world
        for exchange, count in zip(exchanges, counts):
            exchange.fill(np.zeros(count // world if self._operation == "all-gather" else count, dtype=np.float32))
        yield
        self._verify(run, exchanges, counts)

    def _verify(self, run: Call, exchanges: List[Exchange], counts: List[int]) -> None:
        """Call `run` once on known numbers, other ones for every exchange and every call, and check each result."""
        rank, world = self._communicator.rank, self._communicator.setup.world
        known = [
            (exchange, count, self._turn + place) for place, (exchange, count) in enumerate(zip(exchanges, counts))
        ]
        self._turn += len(known)
        for exchange, count, turn in known:
            exchange.fill(given(self._operation, count, rank, world, turn, self._dtype))
        run()
        for exchange, count, turn in known:
            check(exchange.result(), self._operation, count, rank, world, turn, self._dtype)

    def _exchange(self, count: int) -> Exchange:
        more = () if self._dtype == "float32" else (self._dtype,)  # most communicators know no other type
        return self._communicator.exchange(self._operation, count, *more)

    def _divisible(self, count: int) -> int:
        return divisible(self._operation, count, self._communicator.setup.world)
