"""TensorFlow's collectives without a training, each in its own tf.function.

All-reduce and all-gather are those of MultiWorkerMirroredStrategy. Its broadcast is an
operation of the runtime: the strategy uses it for the first values of variables.
"""

from typing import Any, Callable

import numpy as np
import tensorflow as tf

from adapters.tensorflow import machine
from adapters.tensorflow.exchange import WorkerGroup
from suite.worker.communicator import Communicator, Exchange
from suite.worker.contract import Joined, Unsupported

OWN_GROUP = 1 << 20  # a group key above those of the strategy
FIRST_INSTANCE = 1 << 20


class TensorFlowCommunicator(Communicator):
    """A worker of TensorFlow's cluster with one device."""

    def start(self) -> Joined:
        setup = self.setup
        machine.prepare(setup)
        self.group = WorkerGroup(setup)
        self._instances = FIRST_INSTANCE
        return Joined(setup.rank, self.group.world, self.group.transport, machine.versions(setup.device))

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        self._instances += 1
        kind = tf.as_dtype(dtype)
        if operation == "all-reduce":
            return Collective(count, kind, self._replicated(self._sum))
        if operation == "all-gather":
            return Collective(count // self.setup.world, kind, self._replicated(self._gathered))
        if operation == "broadcast" and dtype == "bfloat16":
            raise Unsupported("TensorFlow's broadcast takes no bfloat16; its all-reduce and all-gather do")
        if operation == "broadcast":
            return Collective(count, kind, self._broadcast(count, kind, self._instances))
        raise Unsupported("TensorFlow has no %s between CPUs; it has all-reduce, all-gather and broadcast" % operation)

    def _sum(self, own: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own, self.group.options)

    def _gathered(self, own: Any) -> Any:
        return tf.distribute.get_replica_context().all_gather(own, 0, self.group.options)

    def _replicated(self, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a call in the strategy's replica context, its tensor on this worker's device, as required."""

        def whole(values: Any) -> Any:
            def replica() -> Any:
                with tf.device(self.group.device):
                    own = tf.identity(values)
                return body(own)

            return self.group.distribution.run(replica)

        return whole

    def _broadcast(self, count: int, kind: Any, instance: int) -> Callable[[Any], Any]:
        setup, device = self.setup, self.group.device
        keys = {"group_size": setup.world, "group_key": OWN_GROUP, "instance_key": instance}

        def whole(values: Any) -> Any:
            with tf.device(device):
                if setup.rank == 0:
                    return tf.raw_ops.CollectiveBcastSendV2(input=values, **keys)
                return tf.raw_ops.CollectiveBcastRecvV2(T=kind, shape=tf.constant([count]), **keys)

        return whole


class Collective(Exchange):
    """A traced function on one tensor; it returns when the exchange is done."""

    def __init__(self, count: int, kind: Any, body: Callable[[Any], Any]) -> None:
        """Trace the function; nothing is sent yet."""
        self._given, self._kind = tf.zeros([count], kind), kind
        self._taken: Any = None
        function = tf.function(body, autograph=False)
        self._function = function.get_concrete_function(tf.TensorSpec([count], kind))

    def fill(self, values: np.ndarray) -> None:
        self._given = tf.constant(values.astype(self._kind.as_numpy_dtype))

    def run(self) -> None:
        """Run the function, which waits on a CPU."""
        self._taken = self._function(self._given)

    def result(self) -> np.ndarray:
        found: np.ndarray = self._taken.numpy().astype(np.float32, copy=False)
        return found
