"""MXNet's distributed key-value store without a training: push and pull as an all-reduce, and its broadcast."""

from typing import Any, Optional

import mxnet as mx
import numpy as np

from adapters.mxnet import machine
from adapters.mxnet.exchange import StoreGroup
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

KEPT = 1 << 30  # bytes: the servers keep all values that were broadcast


class StoreCommunicator(Communicator):
    """A worker of a "dist_sync" store."""

    def start(self) -> Joined:
        machine.contexts(self.setup)
        self.group = StoreGroup("dist_sync", None)
        return Joined(self.setup.rank, self.group.world, "ps-lite", machine.versions())

    @property
    def rank(self) -> int:
        """This worker's number in the store, which broadcasts the values of its number 0."""
        return int(self.group.store.rank)

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation == "all-reduce":
            return Sum(self.group, count, dtype)
        if operation == "broadcast":
            return Broadcast(self.group, count, dtype)
        raise Unsupported("a key-value store has no %s; it has all-reduce and broadcast" % operation)


class ArrayExchange(Exchange):
    """An operation from an array that a rank sends to one that it receives; both may be the same."""

    def __init__(self, given: Any, received: Any) -> None:
        self._given, self._received = given, received

    def fill(self, values: np.ndarray) -> None:
        self._given[:] = values
        self._given.wait_to_read()

    def result(self) -> np.ndarray:
        received: np.ndarray = self._received.asnumpy().astype(np.float32, copy=False)
        return received


class Waiting(Pending):
    """An array that MXNet's engine will write."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def test(self) -> bool:
        """Return False: the engine's threads cannot be asked."""
        return False

    def wait(self) -> None:
        self._array.wait_to_read()


class Sum(ArrayExchange):
    """`pushpull` under an unused key: the servers sum what workers push, and return it into the same array."""

    def __init__(self, group: StoreGroup, count: int, dtype: str) -> None:
        """Initialise the key with zeros."""
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
    """`broadcast`, as of first parameters, under a new key each time: a key is initialised only once."""

    def __init__(self, group: StoreGroup, count: int, dtype: str) -> None:
        super().__init__(mx.nd.zeros((count,), dtype=dtype), mx.nd.zeros((count,), dtype=dtype))
        self._group = group

    def run(self) -> None:
        self._group.store.broadcast(self._group.keys(1)[0], self._given, out=self._received)
        self._received.wait_to_read()

    @property
    def most(self) -> Optional[int]:
        return max(8, KEPT // (4 * self._given.size))
