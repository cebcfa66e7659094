"""MXNet's distributed key-value store by itself: push and pull as an all-reduce, and its broadcast.

Oldest Python: 3.6.
"""

from typing import Any, Optional

import mxnet as mx
import numpy as np

from adapters.mxnet import machine
from adapters.mxnet.group import Group
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

KEPT = 1 << 30  # bytes: the servers keep every value that was ever broadcast


class StoreCommunicator(Communicator):
    """A worker of a "dist_sync" store."""

    def start(self) -> Joined:
        """As the trainer's 'dist_sync' joins."""
        machine.contexts(self.setup)
        self._group = Group("dist_sync", None)
        return Joined(self.setup.rank, self._group.world, "ps-lite", machine.versions())

    @property
    def rank(self) -> int:
        """The store numbers its workers in its own order, and broadcasts its first one's values."""
        number: int = self._group.store.rank
        return number

    def exchange(self, operation: str, count: int) -> Exchange:
        """Two of them."""
        if operation == "all-reduce":
            return Sum(self._group, count)
        if operation == "broadcast":
            return Broadcast(self._group, count)
        raise Unsupported("a key-value store has no %s; it has all-reduce and broadcast" % operation)

    def maximum(self, value: float) -> float:
        """Beside the store, which only sums."""
        return self._group.maximum(value)

    def close(self) -> None:
        """Leave together."""
        self._group.close()


class Waiting(Pending):
    """An array that MXNet's engine is going to write."""

    def __init__(self, array: Any) -> None:
        """The array."""
        self._array = array

    def test(self) -> bool:
        """The engine's threads work by themselves, and cannot be asked."""
        return False

    def wait(self) -> None:
        """Until it is written."""
        self._array.wait_to_read()


class Sum(Exchange):
    """`pushpull` on a key of its own: the servers add up what all workers push."""

    def __init__(self, group: Group, count: int) -> None:
        """Give the servers the key, with zeros."""
        self._store, (self._key,) = group.store, group.keys(1)
        self._array = mx.nd.zeros((count,))
        self._store.init(self._key, self._array)

    def fill(self, values: np.ndarray) -> None:
        """A distributed store receives into the very array that was pushed."""
        self._array[:] = values
        self._array.wait_to_read()

    def run(self) -> None:
        """Waited for."""
        self.begin().wait()

    def begin(self) -> Pending:
        """MXNet's engine never waits."""
        self._store.pushpull(self._key, self._array, out=self._array)
        return Waiting(self._array)

    def result(self) -> np.ndarray:
        """A copy."""
        found: np.ndarray = self._array.asnumpy()
        return found


class Broadcast(Exchange):
    """`broadcast`, as parameters begin: a new key each time, for a key can be initialised once."""

    def __init__(self, group: Group, count: int) -> None:
        """Nothing is sent yet."""
        self._group = group
        self._value, self._out = mx.nd.zeros((count,)), mx.nd.zeros((count,))

    def fill(self, values: np.ndarray) -> None:
        """Of the store's first worker they are sent."""
        self._value[:] = values
        self._value.wait_to_read()

    def run(self) -> None:
        """Waited for."""
        self._group.store.broadcast(self._group.keys(1)[0], self._value, out=self._out)
        self._out.wait_to_read()

    def result(self) -> np.ndarray:
        """A copy."""
        found: np.ndarray = self._out.asnumpy()
        return found

    @property
    def most(self) -> Optional[int]:
        """As many as the servers can keep."""
        return max(8, KEPT // (4 * self._value.size))
