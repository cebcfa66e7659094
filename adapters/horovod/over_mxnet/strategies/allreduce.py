"""`allreduce` over MXNet: the trainer of adapters/mxnet, its gradients summed by Horovod's all-reduce.

An all-reduce is an operation of MXNet's engine, asked for as soon as the backward is: the engine
begins it when its gradient is there, and the update of a weight when its sum is.
"""

from typing import Any, Dict

from adapters.horovod.over_mxnet.engine import hvd
from adapters.horovod.ring.ranks import Ring
from adapters.mxnet import machine
from adapters.mxnet.base import MXNetTrainer
from adapters.mxnet.optimisers import name_of, settings
from suite.worker.contract import Joined


class AllReduce(MXNetTrainer):
    """`default` with hvd.DistributedTrainer, `tuned` with the operators beneath it."""

    def start(self) -> Joined:
        self._contexts = machine.contexts(self.setup)
        self.group = Ring(hvd, self.setup)
        return self.group.joined(machine.versions())

    def _connect(self) -> None:
        if self.setup.world > 1:
            self._exchange_by(Summing(), range(len(self._parameters)))
        if not self.setup.tuned:
            own, rule = dict(self._net.trainable()), self.setup.optimiser
            self._trainer = hvd.DistributedTrainer(own, name_of(rule), settings(rule), prefix="native.")
            self._trainer_batch = self.setup.batch  # of this rank: it divides by the ranks itself

    def close(self) -> None:
        if self.group is not None:
            self.synchronize()
            self._release()
        super().close()

    def notes(self) -> Dict[str, Any]:
        notes = dict(super().notes(), **self.group.notes() if self.group else {})
        if self._trainer is not None:
            notes["optimiser"] = "hvd.DistributedTrainer, %s" % name_of(self.setup.optimiser)
        del notes["compression"]
        return notes


class Summing:
    """Horovod as a key-value store."""

    def init(self, key: int, value: Any) -> None:
        """Nothing is kept anywhere."""

    def pushpull(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """The sum over all ranks, in place; nothing is waited for."""
        (gradient,) = value
        hvd.allreduce_(gradient, op=hvd.Sum, name="sum.%d" % key, priority=priority)


TRAINER = AllReduce
