"""`dist_async`: parameter servers update as each worker's gradients come, and send the weights back.

One stage, `communicate`: the servers' optimiser (staleness.py makes it) moves their weights.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

from adapters.mxnet.base import wait_for
from adapters.mxnet.exchange import Arrays, like
from adapters.mxnet.optimisers import name_of
from adapters.mxnet.parameter_server import WorkerTrainer
from adapters.mxnet.staleness import Staleness, counting


class DistAsync(WorkerTrainer):
    """A worker pushes every gradient, pulls every weight, and waits for no other worker.

    A distributed store receives into the very array that was pushed, whatever `out` says: the gradients are lost.
    """

    def _release(self) -> None:
        self._store: Any = None
        self._copies: Arrays = []
        self._staleness: Optional[Staleness] = None
        super()._release()

    def _connect(self) -> None:
        """Give the servers the optimiser and the first weights; a key more counts the updates."""
        assert self._group is not None
        store = self._store = self._group.store
        *self._keys, self._counter = self._group.keys(len(self._parameters) + 1)
        if store.rank == 0:
            store.set_optimizer(counting(self.setup.optimiser, self._global_batch, self._counter))
        for key, parameter in zip(self._keys, self._parameters):
            store.init(key, parameter.list_data()[0])  # also a barrier: the optimiser is there
        store.init(self._counter, mx.nd.zeros((1,)))

    def communicate(self) -> None:
        """With copies of the gradients, which stay: what comes back is no gradient to push again."""
        gradients = self._local()
        self._copies = self._copies or like(gradients)
        for devices, copies in zip(gradients, self._copies):
            for array, copy in zip(devices, copies):
                array.copyto(copy)
        wait_for(self._exchange(self._copies))

    def update(self) -> None:
        """It has happened on the servers."""

    def step(self, batch: Any) -> None:
        """Backward and exchange are handed to the engine at once."""
        self.forward(batch)
        autograd.backward(self._losses)
        gradients = self._local()
        if self._staleness is None:
            self._exchange(gradients)
        else:
            self._staleness.mark(gradients[0][0])
            self._exchange(gradients)
            self._staleness.exchange()
        self._pace()

    def _exchange(self, gradients: Arrays) -> Arrays:
        """Push the gradients, pull the weights, and return these."""
        weights = [parameter.list_data() for parameter in self._parameters]
        for place, key in enumerate(self._keys):
            self._store.pushpull(key, gradients[place], out=weights[place], priority=-place)
        return weights

    def begin_training(self) -> None:
        """Count from now on how stale the weights are."""
        self._staleness = self._staleness or Staleness(self._store, self._counter)

    def notes(self) -> Dict[str, Any]:
        """Who updates, what the staged exchange copies, how stale the weights were."""
        copied = [array for devices in self._local() for array in devices]
        megabytes = sum(array.size * np.dtype(array.dtype).itemsize for array in copied) / 1e6
        rule = name_of(self.setup.optimiser)
        notes = dict(super().notes(), optimiser="%s on the servers; gradients are divided by the global batch" % rule)
        notes["exchange"] = "staged and comm_only first copy the gradients, %.1f MB; native does not" % megabytes
        if self._staleness is not None:
            notes["staleness"] = self._staleness.notes()
        return notes


TRAINER = DistAsync
