"""Communication alone: an adapter's second interface, next to its Trainer, which `stagebench comm` measures.

Order of calls, in every process of a case:

    start -> exchange -> any number of fill, run, begin, result on it -> more exchanges -> close

The numbers that an operation takes and returns, for `count` numbers on n ranks, as nccl-tests counts sizes
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):

| operation | a rank fills | a rank's result |
|---|---|---|
| all-reduce | count | count: the sum over ranks |
| broadcast | count | count: rank 0's |
| reduce-scatter | count | count / n: its share of the sum, shares in the ranks' order |
| all-gather | count / n | count: all ranks' numbers, in the ranks' order |
| point-to-point | count | count: rank 0's; on rank 0 and the last rank only |
| all-to-all | count | count: this rank's share of each rank's numbers, in the ranks' order |
"""

import time
from abc import ABC, abstractmethod
from typing import Optional

import numpy as np

from stagebench.suite.worker.contract import Setup, Unsupported
from stagebench.suite.worker.member import Member

WORK, PASSES = 8192, 16  # numbers of a slice of computation, which a core's own cache holds, and passes over them


class Pending(ABC):
    """A non-blocking operation that has begun."""

    @abstractmethod
    def test(self) -> bool:
        """Let the library make progress; True when the operation is over."""

    @abstractmethod
    def wait(self) -> None:
        """Return when the operation is over."""


class Exchange(ABC):
    """An operation on memory of its own; all ranks create their exchanges in the same order."""

    @abstractmethod
    def fill(self, values: np.ndarray) -> None:
        """Take this rank's numbers: float32, one dimension; an operation in place may overwrite them.

        They are whole numbers that the exchange's own type holds exactly.
        """

    @abstractmethod
    def run(self) -> None:
        """Run the operation to its end.

        `point-to-point` goes there and back: rank 0 sends to the last rank, which returns the numbers that it has
        received; the other ranks do nothing.
        """

    @abstractmethod
    def result(self) -> np.ndarray:
        """Return this rank's result of the last `run` (or `begin`, waited for): float32, on the host."""

    def begin(self) -> Pending:
        """Begin the operation without waiting for it; Unsupported if the library cannot."""
        raise Unsupported(f"{type(self).__name__} has no non-blocking form here")

    @property
    def most(self) -> Optional[int]:
        """The largest number of calls of `run` that memory or the library allows; None: no bound."""
        return None


class Communicator(Member):
    """A rank of a group that only exchanges."""

    def __init__(self, setup: Setup) -> None:
        """Keep the setup; touch neither device nor network yet."""
        super().__init__(setup)
        self._work = np.ones(WORK, dtype=np.float32)

    @property
    def rank(self) -> int:
        """The number of this rank in the library's own order, which results in the ranks' order follow."""
        return self.setup.rank

    @abstractmethod
    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        """Create an operation on `count` numbers of a type (`stagebench.suite.worker.case_parts.ITEMSIZES`).

        `count` is a multiple of the ranks if the operation cuts the numbers into parts. Unsupported for an operation or
        a type that the library does not have.
        """

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.maximum(0.0) if self.group is None else self.group.barrier()

    def compute(self) -> None:
        """Compute a slice of work, tens of microseconds long, behind which an exchange may be hidden."""
        for _ in range(PASSES):
            np.multiply(self._work, np.float32(1.0), out=self._work)

    def clock(self) -> float:
        """Return the seconds on a clock of this rank alone."""
        return time.perf_counter()
