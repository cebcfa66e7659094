"""Horovod's collectives by themselves, on MXNet's arrays: the operations of MXNet's engine that a training gives it.

What is small waits for Horovod's next cycle (the knob `cycle_time_ms`): so does a gradient.
"""

from typing import Any, Callable, Dict

import mxnet as mx

from adapters.horovod.over_mxnet.engine import hvd
from adapters.horovod.ring.ranks import Ring
from adapters.mxnet.comm import ArrayExchange, Waiting
from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported


class RingCommunicator(Communicator):
    """A rank of Horovod's."""

    def start(self) -> Joined:
        self.group, self._made = Ring(hvd, self.setup), 0
        return self.group.joined({"mxnet": mx.__version__})

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        """A collective operation: Horovod has no messages between two ranks."""
        if operation not in CALLS:
            raise Unsupported("Horovod has no %s; it has %s" % (operation, ", ".join(CALLS)))
        self._made += 1
        given = count // self.setup.world if operation == "all-gather" else count
        return Collective(CALLS[operation], "%s.%d" % (operation, self._made), given, dtype)

    def close(self) -> None:
        mx.nd.waitall()
        super().close()


class Collective(ArrayExchange):
    """A call under a name of its own, which all ranks give it; `given` numbers are filled by a rank."""

    def __init__(self, call: Callable[[Any, str], Any], name: str, given: int, dtype: str) -> None:
        array = mx.nd.zeros((given,), dtype=dtype)
        super().__init__(array, array)
        self._call, self._name = call, name

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
