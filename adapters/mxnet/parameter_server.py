"""Workers of a distributed key-value store; its scheduler and servers are programs of their own (server.py)."""

import gc
import socket
from typing import Any, Dict, List, Optional

import mxnet as mx
import numpy as np

from adapters.mxnet import machine
from adapters.mxnet.base import MXNetTrainer
from adapters.mxnet.compression import Compressed
from adapters.mxnet.ps_lite import take_part
from suite.worker.contract import Group, Joined
from suite.worker.meeting import Meeting
from suite.worker.sockets import listening


class WorkerTrainer(MXNetTrainer):
    """A worker; MXNet calls its distributed stores what the strategies are called."""

    group: "StoreGroup"

    def start(self) -> Joined:
        self._contexts = machine.contexts(self.setup)
        self.group = StoreGroup(self.setup.strategy, self._compression)
        return Joined(self.setup.rank, self.group.world, "ps-lite", machine.versions(), len(self._contexts))

    def close(self) -> None:
        if self.group is not None:
            mx.nd.waitall()
            self._release()
        super().close()
        gc.collect()


class StoreGroup(Group):
    """Workers joined by one store: there can be one a process, so it outlives a rebuilt network.

    The store numbers its workers in its own order, and nothing depends on it.
    """

    def __init__(self, kind: str, compression: Optional[Dict[str, Any]]) -> None:
        """Join as a worker of a "dist_" store of that kind; waits for scheduler, servers and workers."""
        own = take_part("worker")
        self.store: Any = mx.kv.create(kind)
        self.world, self._next = self.store.num_workers, 0
        self._meeting = met(self.store, self.keys(1)[0], own)
        if compression is not None:
            self.store = Compressed(self.store, compression)

    def keys(self, count: int) -> List[int]:
        """Keys that nobody has used: a key of a distributed store can be initialised once."""
        self._next += count
        return list(range(self._next - count, self._next))

    def maximum(self, value: float) -> float:
        """The largest value over all workers: a store sums, and an asynchronous one not even that."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """Leave together: the last reference to the store waits for all workers and ends the servers."""
        self._meeting.leave()
        self.store = None


def met(store: Any, key: int, own: str) -> Meeting:
    """The workers' meeting, at a free port of the store's first worker, which broadcasts it by the store.

    The store numbers the workers in its own order; MASTER_PORT is the scheduler's.
    """
    listener = listening((own, 0)) if store.rank == 0 else None
    port = listener.getsockname()[1] if listener else 0
    place = np.array([*socket.inet_aton(own), port], dtype=np.float32)  # without loss: a port is below 2**24
    received = mx.nd.zeros(place.shape)
    store.broadcast(key, mx.nd.array(place), out=received)
    *host, port = [int(each) for each in received.asnumpy()]
    return Meeting(store.rank, store.num_workers, (".".join(map(str, host)), port), listener)
