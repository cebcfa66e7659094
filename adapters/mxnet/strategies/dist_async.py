"""`dist_async`: parameter servers update as each worker's gradients come, and send the weights back.

One stage, `communicate`: the servers' optimiser updates their weights.
"""

from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

from stagebench.adapters.mxnet.machine import ByDevice, like, wait_for
from stagebench.adapters.mxnet.optimisers import counting, name_of
from stagebench.adapters.mxnet.strategies.kvstore import WorkerTrainer
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Notes


class DistAsync(WorkerTrainer):
    """A worker pushes every gradient, pulls every weight, and waits for no other worker.

    A distributed store receives into the very array that was pushed, whatever `out` says: the gradients are lost.
    """

    def _release(self) -> None:
        self._update_count: Optional[UpdateCount] = None  # set while updates are counted
        super()._release()

    def _connect(self) -> None:
        """Give the servers the optimiser and the first weights; one more key counts the updates."""
        store = self.group.store
        *keys, self._counter = self.group.keys(len(self._parameters) + 1)
        if store.rank == 0:
            decays = {key: parameter.wd_mult for key, parameter in zip(keys, self._parameters)}
            store.set_optimizer(counting(self.setup.optimiser, self._global_batch, self._counter, decays))
        self._exchange_by(store, keys)  # also a barrier: the servers have the optimiser
        store.init(self._counter, mx.nd.zeros((1,)))

    def communicate(self) -> None:
        """Exchange copies of the gradients, which must stay: weights come back into what was pushed."""
        gradients, weights = self._local(), self._weights()
        self._stand_ins = self._stand_ins or like(gradients)
        for devices, copies in zip(gradients, self._stand_ins):
            for array, copy in zip(devices, copies):
                array.copyto(copy)
        self._exchange(self._stand_ins, into=weights)
        wait_for(weights)

    def update(self) -> None:
        """No-op: the servers have updated."""

    def step(self, batch: Any) -> None:
        self.forward(batch)
        autograd.backward(self._losses)
        gradients, weights = self._local(), self._weights()
        if self._update_count is None:
            self._exchange(gradients, into=weights)
        else:
            self._update_count.mark(gradients[0][0])
            self._exchange(gradients, into=weights)
            self._update_count.exchange()
        self._pace()

    def _weights(self) -> ByDevice:
        return [parameter.list_data() for parameter in self._parameters]

    def waits_for_ranks(self) -> bool:
        return False

    def begin_training(self) -> None:
        self._update_count = self._update_count or UpdateCount(self._store, self._counter)

    def joint_steps(self) -> Optional[int]:
        """Count up to the exchange before this step's, which may still be under way."""
        return None if self._update_count is None else self._update_count.updates // self.setup.world

    def notes(self) -> Notes:
        copied = [array for devices in self._local() for array in devices]
        megabytes = sum(array.size * np.dtype(array.dtype).itemsize for array in copied) / 1e6
        rule = name_of(self.setup.optimiser)
        notes = dict(super().notes(), optimiser=f"{rule} on the servers; gradients are divided by the global batch")
        notes["exchange"] = f"staged and comm_only first copy the gradients, {megabytes:.1f} MB; native does not"
        return notes if self._update_count is None else dict(notes, **self._update_count.notes())


class UpdateCount:
    """The servers' count of all workers' updates.

    It is exchanged with the weights whose gradient is complete last: its growth since this worker's last exchange,
    less this worker's own update, is the number of other updates between this worker's pull and its push.
    """

    def __init__(self, store: Any, key: int) -> None:
        """Begin to count, before any step; the servers must have the key, at zero."""
        self._store, self._key = store, key
        self._count, self._pending = mx.nd.zeros((1,)), False
        self._staleness = Staleness()
        self._staleness.begin()

    @property
    def updates(self) -> int:
        """All workers' updates, as far as this worker knows without waiting."""
        return self._staleness.updates

    def mark(self, gradient: Any) -> None:
        """Before the exchange: make a value to push that depends on this gradient."""
        self._settle()  # no wait: it came with weights that this step has used
        mx.nd.slice_axis(gradient.reshape((-1,)), axis=0, begin=0, end=1).astype("float32").copyto(self._count)

    def exchange(self) -> None:
        """During the exchange: push, and pull the sum into the same array."""
        self._store.pushpull(self._key, [self._count], out=[self._count], priority=0)
        self._pending = True

    def notes(self) -> Notes:
        self._settle()
        return self._staleness.notes()

    def _settle(self) -> None:
        if self._pending:
            self._pending = False
            self._staleness.exchanged(int(self._count.asscalar()))
