"""What a key-value store does for training: sum gradients, or take them and give weights back.

Parameters go in forward order, the first with the highest priority: its weight is
wanted first. Nothing here waits: MXNet's engine starts each exchange when its gradient
is there.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Optional, Sequence

import mxnet as mx
import numpy as np

from adapters.mxnet.staleness import Staleness, counting
from suite.worker.contract import Optimiser

Devices = List[Any]  # one array a device


class Sums:
    """Sums gradients over all devices of all workers (`pushpull` on a store without an optimiser)."""

    def __init__(self, store: Any, keys: Sequence[int], parameters: Sequence[Any]) -> None:
        """Take the keys; `parameters` are Gluon's, in forward order."""
        self._store, self._keys, self._parameters = store, list(keys), list(parameters)
        self._stand_ins: List[Devices] = []
        for key, parameter in zip(self._keys, self._parameters):
            self._store.init(key, parameter.list_data()[0])

    def in_place(self) -> List[Devices]:
        """Replace the gradients by their sums, and return them."""
        return self._exchange([parameter.list_grad() for parameter in self._parameters])

    def again(self) -> List[Devices]:
        """The same work once more, and the sums stay: zeros of the gradients' shapes are exchanged in place.

        The sums themselves would grow with every exchange, and to copy the gradients back
        before each would be timed as communication, which the native step does not do.
        """
        self._stand_ins = self._stand_ins or like([parameter.list_grad() for parameter in self._parameters])
        return self._exchange(self._stand_ins)

    def _exchange(self, arrays: List[Devices]) -> List[Devices]:
        for place, key in enumerate(self._keys):
            self._store.pushpull(key, arrays[place], out=arrays[place], priority=-place)
        return arrays


class Served:
    """Gradients go to the servers, whose optimiser moves their weights, and these come back: "dist_async"."""

    def __init__(
        self, store: Any, keys: Sequence[int], parameters: Sequence[Any], rule: Optimiser, samples: int
    ) -> None:
        """Give the servers the rule and the first weights; a gradient stands for `samples` samples.

        There is a key more than parameters, for the count of updates.
        """
        *self._keys, self._counter = keys
        self._store, self._parameters = store, list(parameters)
        self._pushed: List[Devices] = []
        self._staleness: Optional[Staleness] = None
        if store.rank == 0:
            store.set_optimizer(counting(rule, samples, self._counter))
        for key, parameter in zip(self._keys, self._parameters):
            store.init(key, parameter.list_data()[0])  # also a barrier: the optimiser is there
        store.init(self._counter, mx.nd.zeros((1,)))

    def count(self) -> None:
        """From the next native exchange on, tell how stale the weights were."""
        self._staleness = self._staleness or Staleness(self._store, self._counter)

    @property
    def staleness(self) -> Optional[Dict[str, Any]]:
        """What was counted, if it was."""
        return self._staleness.notes() if self._staleness else None

    @property
    def copied_bytes(self) -> int:
        """What `beside` copies and `native` does not."""
        gradients = [array for parameter in self._parameters for array in parameter.list_grad()]
        return sum(array.size * np.dtype(array.dtype).itemsize for array in gradients)

    def native(self) -> List[Devices]:
        """Push every gradient, pull every weight, return the weights; the gradients are lost.

        A distributed store receives into the very array that was pushed, whatever `out` says.
        """
        gradients = [parameter.list_grad() for parameter in self._parameters]
        if self._staleness is None:
            return self._exchange(gradients)
        self._staleness.mark(gradients[0][0])
        weights = self._exchange(gradients)
        self._staleness.exchange()
        return weights

    def beside(self) -> List[Devices]:
        """The same with copies of the gradients, which stay: what came back is no gradient to push again."""
        gradients = [parameter.list_grad() for parameter in self._parameters]
        self._pushed = self._pushed or like(gradients)
        return self._exchange(copied(gradients, self._pushed))

    def _exchange(self, gradients: List[Devices]) -> List[Devices]:
        weights = [parameter.list_data() for parameter in self._parameters]
        for place, key in enumerate(self._keys):
            self._store.pushpull(key, gradients[place], out=weights[place], priority=-place)
        return weights


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
        """Of the store."""
        kind: str = self._store.type
        return kind

    @property
    def rank(self) -> int:
        """Of this worker."""
        rank: int = self._store.rank
        return rank

    @property
    def num_workers(self) -> int:
        """All of them."""
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


def like(arrays: List[Devices]) -> List[Devices]:
    """New arrays of the same shapes on the same devices."""
    return [[mx.nd.zeros_like(each) for each in devices] for devices in arrays]


def copied(arrays: List[Devices], places: List[Devices]) -> List[Devices]:
    """Copy the arrays to these places, and return the places."""
    for devices, ours in zip(arrays, places):
        for array, place in zip(devices, ours):
            array.copyto(place)
    return places
