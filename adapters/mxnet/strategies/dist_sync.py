"""`dist_sync`: parameter servers sum the workers' gradients; every worker updates."""

from typing import Any, Optional, Sequence

import mxnet as mx

from adapters.mxnet.parameter_server import WorkerTrainer


class DistSync(WorkerTrainer):
    """`tuned` exchanges and updates by itself; `default` gives the store to gluon.Trainer."""

    def _connect(self) -> None:
        group, count = self.group, len(self._parameters)
        self._exchange_by(group.store, group.keys(count))
        if not self.setup.tuned:
            self._train_by(Renumbered(group.store, group.keys(count)))


class Renumbered(mx.kvstore.KVStoreBase):
    """A distributed store under keys of its own, for a gluon.Trainer: it counts from 0, and may be the second one."""

    def __init__(self, store: Any, keys: Sequence[int]) -> None:
        """Key i of the Trainer is keys[i] of the store."""
        self._store, self._keys = store, list(keys)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """No optimiser: one on the servers would take every sum for a gradient, the staged exchange's too."""
        return False

    @property
    def type(self) -> str:
        kind: str = self._store.type
        return kind

    @property
    def rank(self) -> int:
        """This worker's, in the store's order."""
        rank: int = self._store.rank
        return rank

    @property
    def num_workers(self) -> int:
        count: int = self._store.num_workers
        return count

    def broadcast(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """The first worker's value to all, waiting for it.

        A pull that is under way does not hold back the key's first push: where that
        overtakes it, the pull returns the gradients, and they become the weights.
        """
        self._store.broadcast(self._keys[key], value, out, priority)
        for array in out:
            array.wait_to_read()

    def pushpull(self, key: int, value: Any, out: Optional[Any] = None, priority: int = 0) -> None:
        """The sum over all workers, in place unless `out` is given."""
        self._store.pushpull(self._keys[key], value, out=value if out is None else out, priority=priority)
