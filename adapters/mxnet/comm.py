"""MXNet's distributed key-value store by itself: push and pull as an all-reduce, and its broadcast."""

from typing import Any, Optional

import mxnet as mx
import numpy as np

from adapters.mxnet import machine
from adapters.mxnet.parameter_server import StoreGroup
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

KEPT = 1 << 30  # bytes: the servers keep every value that was ever broadcast


class StoreCommunicator(Communicator):
    """A worker of a "dist_sync" store."""

    def start(self) -> Joined:
        machine.contexts(self.setup)
        self.group = StoreGroup("dist_sync", None)
        return Joined(self.setup.rank, self.group.world, "ps-lite", machine.versions())

    @property
    def rank(self) -> int:
        """The store numbers its workers in its own order, and broadcasts its first one's values."""
        return int(self.group.store.rank)

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation == "all-reduce":
            return Sum(self.group, count, dtype)
        if operation == "broadcast":
            return Broadcast(self.group, count, dtype)
        raise Unsupported("a key-value store has no %s; it has all-reduce and broadcast" % operation)


class ArrayExchange(Exchange):
    """An operation on MXNet's arrays: of what a rank gives and of what it receives; they may be one."""

    def __init__(self, given: Any, received: Any) -> None:
        self._given, self._received = given, received

    def fill(self, values: np.ndarray) -> None:
        self._given[:] = values
        self._given.wait_to_read()

    def result(self) -> np.ndarray:
        found: np.ndarray = self._received.asnumpy().astype(np.float32, copy=False)
        return found


class Waiting(Pending):
    """An array that MXNet's engine is going to write."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def test(self) -> bool:
        """The engine's threads work by themselves, and cannot be asked."""
        return False

    def wait(self) -> None:
        self._array.wait_to_read()


class Sum(ArrayExchange):
    """`pushpull` on a key of its own: the servers add up what all workers push; it comes back into the same array."""

    def __init__(self, group: StoreGroup, count: int, dtype: str) -> None:
        """Give the servers the key, with zeros."""
        array = mx.nd.zeros((count,), dtype=dtype)
        super().__init__(array, array)
        self._store, (self._key,) = group.store, group.keys(1)
        self._store.init(self._key, array)

    def run(self) -> None:
        self.begin().wait()

    def begin(self) -> Pending:
        self._store.pushpull(self._key, self._given, out=self._given)
        return Waiting(self._given)


class Broadcast(ArrayExchange):
    """`broadcast`, as parameters begin: a new key each time, for a key can be initialised once."""

    def __init__(self, group: StoreGroup, count: int, dtype: str) -> None:
        super().__init__(mx.nd.zeros((count,), dtype=dtype), mx.nd.zeros((count,), dtype=dtype))
        self._group = group

    def run(self) -> None:
        self._group.store.broadcast(self._group.keys(1)[0], self._given, out=self._received)
        self._received.wait_to_read()

    @property
    def most(self) -> Optional[int]:
        return max(8, KEPT // (4 * self._given.size))
