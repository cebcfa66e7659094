"""tf.distribute's synchronous strategies: `mirrored`, several devices of one process, and `multiworker_mirrored`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from stagebench.adapters.tensorflow.comm import WorkerGroup
from stagebench.adapters.tensorflow.optimisers import Tensors
from stagebench.adapters.tensorflow.replicas import Replicas
from stagebench.suite.worker.contract import Setup, chosen
from stagebench.suite.worker.trainer import Notes

# The class that exchanges, and its transport by kind of device, by the knob `cross_device`.
CROSS_DEVICE: Dict[str, Any] = {
    "nccl": (tf.distribute.NcclAllReduce, "nccl"),
    "hierarchical": (tf.distribute.HierarchicalCopyAllReduce, "memory: hierarchical copies"),
    "reduction_to_one": (tf.distribute.ReductionToOneDevice, "memory: reduction to one device"),
}


class Mirrored(Replicas):
    """A replica per device; gradients are summed as the knob `cross_device` says."""

    one_cluster = False

    def __init__(self, setup: Setup) -> None:
        """Make no strategy of tf.distribute yet, which needs the devices."""
        super().__init__(setup)
        self.distribution: Any = None  # of tf.distribute
        self._threads: Optional[ThreadPoolExecutor] = None

    def join(self) -> None:
        # The default is the strategy's own, made explicit.
        by_device = "nccl" if self.setup.device == "cuda" else "reduction_to_one"
        exchange = chosen(self.setup, "cross_device", default=by_device)
        kind, self.transport = CROSS_DEVICE[exchange]
        self.distribute(tf.distribute.MirroredStrategy(self.devices, kind()))

    def distribute(self, distribution: Any) -> None:
        """Train under a strategy of tf.distribute, on its devices."""
        self.distribution, self.devices = distribution, list(distribution.extended.worker_devices)
        self._threads = ThreadPoolExecutor(len(self.devices))  # starts a thread at its first task

    def close(self) -> None:
        super().close()
        if self._threads is not None:
            self._threads.shutdown()

    def per_device(self, make: Callable[[], Any]) -> List[Any]:
        """Return the components of a mirrored variable."""
        with self.distribution.scope():
            return list(self.distribution.experimental_local_results(make()))

    def replicate(self, body: Callable[[int], Any]) -> List[Any]:
        """Call Strategy.run, and split its results by device."""
        distribution = self.distribution
        whole = distribution.run(lambda: body(replica_of(distribution)))
        leaves = [distribution.experimental_local_results(leaf) for leaf in tf.nest.flatten(whole)]
        return [tf.nest.pack_sequence_as(whole, list(part)) for part in zip(*leaves)]

    def each(self, body: Callable[[int], Any]) -> List[Any]:
        """Run on a thread per device: TensorFlow releases the interpreter's lock while a function runs."""
        if len(self.devices) == 1:
            return [body(0)]
        assert self._threads is not None
        return list(self._threads.map(body, range(len(self.devices))))

    def average(self, gradients: Tensors) -> Tensors:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def notes(self) -> Notes:
        return dict(super().notes(), exchange=self.transport)


def replica_of(distribution: Any) -> int:
    """Return the number of the traced device; inside the strategy's run."""
    if len(distribution.extended.worker_devices) == 1:
        return 0
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


class MultiWorkerMirrored(Mirrored):
    """All-reduce by a ring over gRPC, or by NCCL between GPUs."""

    def join(self) -> None:
        self.group = group = WorkerGroup(self.setup)
        self.rank, self.world, self.transport = self.setup.rank, group.world, group.transport
        self._options = group.options
        self.distribute(group.distribution)

    def average(self, gradients: Tensors) -> Tensors:
        """The strategy's own all-reduce; each gradient is named on this worker's device, which it insists on."""
        with tf.device(self.devices[0]):
            own = [tf.identity(gradient) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, own, self._options)

    def notes(self) -> Notes:
        return dict(super().notes(), pack_mb=self.setup.knobs["pack_mb"])
