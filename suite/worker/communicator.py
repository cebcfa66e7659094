"""Communication by itself: what an adapter offers beside its Trainer, so that `stagebench comm` can measure it.

Order of calls, in every process of a case:

    start -> exchange -> any number of fill, run, begin, result on it -> more exchanges -> close

How many numbers an operation takes and gives, for `count` numbers on n ranks, as nccl-tests counts sizes
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md):

| operation | a rank fills | a rank's result |
|---|---|---|
| all-reduce | count | count: the sum over ranks |
| broadcast | count | count: rank 0's |
| reduce-scatter | count | count / n: its share of the sum, shares in the ranks' order |
| all-gather | count / n | count: everybody's, in the ranks' order |
| point-to-point | count | count: what rank 0 filled; on rank 0 and the last rank only |
| all-to-all | count | count: of everybody's numbers this rank's share, in the ranks' order |
"""

import time
from abc import ABC, abstractmethod
from typing import Any, Optional

import numpy as np

from suite.worker.contract import Joined, Setup, Unsupported

ITEMSIZES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a number, by the type that travels

WORK, PASSES = 8192, 16  # numbers, and times they are gone over, of a slice of computation: in a core's own cache


class Pending(ABC):
    """A non-blocking operation on its way."""

    @abstractmethod
    def test(self) -> bool:
        """Let the library make progress; True when the operation is over."""

    @abstractmethod
    def wait(self) -> None:
        """Return when the operation is over."""


class Exchange(ABC):
    """One operation on memory of its own; all ranks make their exchanges in the same order."""

    @abstractmethod
    def fill(self, values: np.ndarray) -> None:
        """Take what this rank gives: float32, one dimension; an operation in place may overwrite it.

        They are whole numbers that the exchange's own type holds exactly.
        """

    @abstractmethod
    def run(self) -> None:
        """The operation, whole.

        `point-to-point` is there and back again: rank 0 sends to the last rank, which
        returns what it has received; the others do nothing.
        """

    @abstractmethod
    def result(self) -> np.ndarray:
        """What the last `run` (or `begin`, waited for) left on this rank: float32, on the host."""

    def begin(self) -> Pending:
        """The operation without waiting for it; Unsupported where the library cannot."""
        raise Unsupported("%s has no non-blocking form here" % type(self).__name__)

    @property
    def most(self) -> Optional[int]:
        """How often `run` may be called in all, where memory or the library sets a bound."""
        return None


class Communicator(ABC):
    """One rank of a group that only exchanges."""

    group: Any = None  # a Group, where `start` keeps it here: `maximum`, `barrier` and `close` are asked of it

    def __init__(self, setup: Setup) -> None:
        """Keep the setup; touch neither device nor network yet."""
        self.setup = setup
        self._work = np.ones(WORK, dtype=np.float32)

    @abstractmethod
    def start(self) -> Joined:
        """Set threads and device, join the group. Called once, first."""

    @property
    def rank(self) -> int:
        """This rank's number in the library's own order, which results in the ranks' order follow."""
        return self.setup.rank

    @abstractmethod
    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        """An operation on `count` numbers of a type (ITEMSIZES), a multiple of the ranks where it cuts them into parts.

        Unsupported for an operation or a type that it does not have.
        """

    def maximum(self, value: float) -> float:
        """The largest value over all ranks; override it where there is no `group`."""
        return float(self.group.maximum(value))

    def barrier(self) -> None:
        """Return when all ranks have come."""
        self.maximum(0.0) if self.group is None else self.group.barrier()

    def synchronize(self) -> None:  # noqa: B027 - a CPU has done it already
        """Return when everything asked of the device has been done."""

    def peak_device_bytes(self) -> Optional[int]:
        """The most that the library has held on this rank's device at a time; None where it does not say."""
        return None

    def compute(self) -> None:
        """A slice of computation, tens of microseconds long: what an exchange may be hidden behind."""
        for _ in range(PASSES):
            np.multiply(self._work, np.float32(1.0), out=self._work)

    def clock(self) -> float:
        """Seconds; on this rank alone."""
        return time.perf_counter()

    def close(self) -> None:
        """Leave the group; called once, last, when all went well."""
        if self.group is not None:
            self.group.close()
