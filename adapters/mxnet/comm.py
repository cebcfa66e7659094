"""Workers of a distributed key-value store: their group, gradients of two bits a number, and the exchanges alone.

The store's scheduler and servers are separate programs (server.py). Compressed, every gradient is pushed as -threshold,
0 or +threshold, and the rest is kept for the next push. A device's gradients are sums over its samples; the sums, not
their means, are compared with the threshold. The rest is kept by a worker of a distributed store (the servers send
whole numbers back), or by every device of a "device" store. Without a training, push and pull are an all-reduce.
"""

import socket
from typing import Any, Dict, List, Optional

import mxnet as mx
import numpy as np

from stagebench.adapters.mxnet import machine
from stagebench.adapters.mxnet.server import take_part
from stagebench.suite.worker.communicator import Communicator, Exchange, Pending
from stagebench.suite.worker.contract import Group, Joined, Setup, Unsupported
from stagebench.suite.worker.meeting import Meeting, listening

BITS = "2bit"


def compression(setup: Setup) -> Optional[Dict[str, Any]]:
    """Return the arguments of `set_gradient_compression`; None without compression.

    A single device's gradients stay whole: it exchanges nothing, and its case's proof is that of one device.
    """
    if not asked(setup) or setup.world * setup.devices == 1:
        return None
    return {"type": BITS, "threshold": float(setup.knobs["threshold"])}


def described(compressed: Optional[Dict[str, Any]], setup: Setup) -> str:
    if compressed is not None:
        return f"2 bits a number, threshold {compressed['threshold']:g} of the sum over a device's samples"
    return "none: a lone device's gradients stay whole" if asked(setup) else "none"


def asked(setup: Setup) -> bool:
    """Look at the knob, which Horovod over this adapter does not have."""
    return bool(setup.knobs.get("compression") == BITS)


class Compressed:
    """A distributed store with compression.

    MXNet lacks `pushpull` for it, the only method that gluon.Trainer calls.
    """

    def __init__(self, store: Any, compression: Dict[str, Any]) -> None:
        """Set compression on workers and servers, before the gradients' keys are initialised (a barrier)."""
        store.set_gradient_compression(compression)
        self._store = store

    def __getattr__(self, name: str) -> Any:
        """Delegate all else to the store."""
        return getattr(self._store, name)

    def pushpull(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """Push, then pull; the engine keeps their order for each key."""
        self._store.push(key, value, priority=priority)
        self._store.pull(key, out=out, priority=priority)


class StoreGroup(Group):
    """Workers joined by one store: a process can have only one, so it outlives a rebuilt network.

    The store numbers its workers in its own order, on which nothing depends.
    """

    def __init__(self, kind: str, compression: Optional[Dict[str, Any]]) -> None:
        """Join as a worker of a "dist_" store; waits for scheduler, servers and workers."""
        address = take_part("worker")
        self.store: Any = mx.kv.create(kind)
        self.world, self._next = self.store.num_workers, 0
        self._meeting = met(self.store, self.keys(1)[0], address)
        if compression is not None:
            self.store = Compressed(self.store, compression)

    def keys(self, count: int) -> List[int]:
        """Return unused keys: a distributed store initialises a key only once."""
        self._next += count
        return list(range(self._next - count, self._next))

    def maximum(self, value: float) -> float:
        """Return the largest value of all workers, by sockets: a store sums, or not even that."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """Leave together: the last reference to the store waits for all workers and ends the servers."""
        self._meeting.leave()
        self.store = None


def met(store: Any, key: int, address: str) -> Meeting:
    """Open the workers' meeting at a free port of the store's first worker, which broadcasts the port by the store.

    The store numbers the workers in its own order; MASTER_PORT is the scheduler's.
    """
    listener = listening((address, 0)) if store.rank == 0 else None
    port = listener.getsockname()[1] if listener else 0
    place = np.array([*socket.inet_aton(address), port], dtype=np.float32)  # exact: a port is below 2**24
    received = mx.nd.zeros(place.shape)
    store.broadcast(key, mx.nd.array(place), out=received)
    *host, port = [int(each) for each in received.asnumpy()]
    return Meeting(store.rank, store.num_workers, (".".join(map(str, host)), port), listener)


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
        raise Unsupported(f"a key-value store has no {operation}; it has all-reduce and broadcast")


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
