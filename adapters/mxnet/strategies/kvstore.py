"""Key-value stores that sum gradients, of which every device updates its own weights.

`kvstore_local` and `kvstore_device` join several devices of one process, `dist_sync` workers by parameter servers.
"""

import gc
from typing import Any, Optional, Sequence

import mxnet as mx

from stagebench.adapters.mxnet import machine
from stagebench.adapters.mxnet.base import MXNetTrainer
from stagebench.adapters.mxnet.comm import StoreGroup
from stagebench.suite.worker.contract import Joined


class KVStoreLocal(MXNetTrainer):
    """The store "local" sums on the host; every device updates its own weights with the sums."""

    kind = "local"

    def _connect(self) -> None:
        if self.setup.devices > 1:
            store = mx.kv.create(self.kind)
            if self._compression is not None:
                store.set_gradient_compression(self._compression)
            self._exchange_by(store, range(len(self._parameters)))
        self._train_by(self.kind, self._compression)  # by name: gluon.Trainer makes its own


class KVStoreDevice(KVStoreLocal):
    """The store "device" sums on the devices."""

    kind = "device"


class WorkerTrainer(MXNetTrainer):
    """A worker of the distributed store that has its strategy's name."""

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


class DistSync(WorkerTrainer):
    """`default` gives the store to gluon.Trainer; `tuned` uses none."""

    def _connect(self) -> None:
        group, count = self.group, len(self._parameters)
        self._exchange_by(group.store, group.keys(count))
        if not self.setup.tuned:
            self._train_by(Renumbered(group.store, group.keys(count)))


class Renumbered(mx.kvstore.KVStoreBase):
    """A distributed store with renumbered keys, for a gluon.Trainer: each one counts from 0."""

    def __init__(self, store: Any, keys: Sequence[int]) -> None:
        """Key i of the Trainer is keys[i] of the store."""
        self._store, self._keys = store, list(keys)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Refuse optimisers on the servers: they would take every sum for a gradient, the staged exchange's too."""
        return False

    @property
    def type(self) -> str:
        kind: str = self._store.type
        return kind

    @property
    def rank(self) -> int:
        """This worker's number in the store."""
        rank: int = self._store.rank
        return rank

    @property
    def num_workers(self) -> int:
        count: int = self._store.num_workers
        return count

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """Send the first worker's value to all, and wait for it.

        A pending pull does not delay the key's first push: if the push overtakes it, the pull returns gradients, and
        they become the weights.
        """
        self._store.broadcast(self._keys[key], value, out, priority)
        for array in out:
            array.wait_to_read()

    def pushpull(self, key: int, value: Any, out: Optional[Any] = None, priority: int = 0) -> None:
        """Sum over all workers, in place unless `out` is given."""
        self._store.pushpull(self._keys[key], value, out=value if out is None else out, priority=priority)
