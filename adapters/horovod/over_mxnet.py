"""Horovod over MXNet: the strategy `allreduce`, and Horovod's collectives without a training.

The trainer is MXNet's own, its gradients summed by Horovod's all-reduce. An all-reduce is an operation of MXNet's
engine, queued as soon as the backward is: the engine begins it when its gradient is complete, and the update of a
weight when its sum is. A small message waits for Horovod's next cycle (the knob `cycle_time_ms`), as a gradient does.
"""

from typing import Any, Callable, Dict

# Horovod makes the symbols of all libraries that it is linked against global, MXNet's copy of libjpeg among them.
# A library that is loaded later uses those symbols: Pillow would then call every image broken, so it is loaded first.
import PIL.Image  # noqa: F401

# isort: split
import horovod.mxnet as hvd
import mxnet as mx

from stagebench.adapters.horovod.ranks import Ring
from stagebench.adapters.mxnet import machine
from stagebench.adapters.mxnet.base import MXNetTrainer
from stagebench.adapters.mxnet.comm import ArrayExchange, Waiting
from stagebench.adapters.mxnet.optimisers import name_of, settings
from stagebench.suite.worker.communicator import Communicator, Exchange, Pending
from stagebench.suite.worker.contract import Joined, Unsupported


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
            parameters = dict(self._net.trainable())
            rule = self.setup.optimiser
            self._trainer = hvd.DistributedTrainer(parameters, name_of(rule), settings(rule), prefix="native.")
            self._trainer_batch = self.setup.batch  # this rank's: Horovod divides by the ranks itself

    def close(self) -> None:
        if self.group is not None:
            self.synchronize()
            self._release()
        super().close()

    def notes(self) -> Dict[str, Any]:
        notes = dict(super().notes(), **self.group.notes() if self.group else {})
        if self._trainer is not None:
            notes["optimiser"] = f"hvd.DistributedTrainer, {name_of(self.setup.optimiser)}"
        del notes["compression"]
        return notes


class Summing:
    """Horovod with the methods of a key-value store."""

    def init(self, key: int, value: Any) -> None:
        """No-op: no value is stored."""

    def pushpull(self, key: int, value: Any, out: Any, priority: int = 0) -> None:
        """Sum over all ranks, in place, without waiting."""
        (gradient,) = value
        hvd.allreduce_(gradient, op=hvd.Sum, name=f"sum.{key}", priority=priority)


class RingCommunicator(Communicator):
    """A rank of Horovod's ring."""

    def start(self) -> Joined:
        self.group = Ring(hvd, self.setup)
        self._made = 0
        return self.group.joined({"mxnet": mx.__version__})

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        """Prepare a collective operation; Unsupported for messages between two ranks, which Horovod lacks."""
        if operation not in CALLS:
            raise Unsupported(f"Horovod has no {operation}; it has {', '.join(CALLS)}")
        self._made += 1
        given = count // self.setup.world if operation == "all-gather" else count
        return Collective(CALLS[operation], f"{operation}.{self._made}", given, dtype)

    def close(self) -> None:
        mx.nd.waitall()
        super().close()


class Collective(ArrayExchange):
    """A call under a name that is equal on all ranks; each rank fills `given` numbers."""

    def __init__(self, call: Callable[[Any, str], Any], name: str, given: int, dtype: str) -> None:
        array = mx.nd.zeros((given,), dtype=dtype)
        super().__init__(array, array)
        self._call = call
        self._name = name

    def run(self) -> None:
        self.begin().wait()

    def begin(self) -> Pending:
        self._received = self._call(self._given, self._name)
        return Waiting(self._received)


CALLS: Dict[str, Callable[[Any, str], Any]] = {
    "all-reduce": lambda array, name: hvd.allreduce_(array, op=hvd.Sum, name=name),
    "broadcast": lambda array, name: hvd.broadcast_(array, root_rank=0, name=name),
    "reduce-scatter": lambda array, name: hvd.reducescatter(array, op=hvd.Sum, name=name),
    "all-gather": lambda array, name: hvd.allgather(array, name=name),
    "all-to-all": lambda array, name: hvd.alltoall(array, name=name),
}
