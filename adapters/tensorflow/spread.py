"""How the training is spread: over which devices, and how gradients are averaged.

Oldest Python: 3.6.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List

import tensorflow as tf

from adapters.tensorflow.addresses import free_port, meeting_place
from suite.worker.contract import Setup
from suite.worker.meeting import Meeting


class Spread:
    """One device, no tf.distribute: the strategy `single`, and what the others share."""

    transport = "none"
    strategy: Any = None  # of tf.distribute
    rank, world = 0, 1

    def __init__(self, devices: List[str]) -> None:
        """`devices` of this rank, by TensorFlow's names."""
        self.devices = list(devices)

    def variables(self, make: Callable[[], Any]) -> List[Any]:
        """What `make` creates, one variable a device of this rank."""
        with tf.device(self.devices[0]):
            return [make()]

    def run(self, body: Callable[[int], Any]) -> List[Any]:
        """`body` on every device of this rank at once, each told its number there; inside a tf.function."""
        return [body(0)]

    def each(self, body: Callable[[int], Any]) -> List[Any]:
        """`body` for every device of this rank at once, told its number; eager: a thread a device."""
        return [body(0)]

    def average(self, gradients: List[Any]) -> List[Any]:
        """Of one device's gradients over all devices of all ranks; inside `run`."""
        return gradients

    def maximum(self, value: float) -> float:
        """Over all ranks."""
        return value

    def close(self) -> None:
        """Leave together."""


# By the knob `cross_device`: what exchanges, and its transport by kind of device.
CROSS_DEVICE: Dict[str, Any] = {
    "nccl": (tf.distribute.NcclAllReduce, "nccl"),
    "hierarchical": (tf.distribute.HierarchicalCopyAllReduce, "memory: hierarchical copies"),
    "reduction_to_one": (tf.distribute.ReductionToOneDevice, "memory: reduction to one device"),
}


class Mirrored(Spread):
    """tf.distribute.MirroredStrategy: several devices of one process."""

    def __init__(self, devices: List[str], device: str, exchange: str) -> None:
        """`exchange` is of CROSS_DEVICE, or "auto": what the strategy would take by itself, written down."""
        if exchange == "auto":
            exchange = "nccl" if device == "cuda" else "reduction_to_one"
        kind, self.transport = CROSS_DEVICE[exchange]
        self._take(tf.distribute.MirroredStrategy(devices, kind()))

    def variables(self, make: Callable[[], Any]) -> List[Any]:
        """The components of a mirrored variable."""
        with self.strategy.scope():
            return list(self.strategy.experimental_local_results(make()))

    def run(self, body: Callable[[int], Any]) -> List[Any]:
        """strategy.run, and its results taken apart."""
        strategy = self.strategy

        def replica() -> Any:
            if len(self.devices) == 1:
                return body(0)
            return body(int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)))

        whole = strategy.run(replica)
        leaves = [strategy.experimental_local_results(leaf) for leaf in tf.nest.flatten(whole)]
        return [tf.nest.pack_sequence_as(whole, list(part)) for part in zip(*leaves)]

    def each(self, body: Callable[[int], Any]) -> List[Any]:
        """TensorFlow lets go of the interpreter's lock while a function runs."""
        if len(self.devices) == 1:
            return [body(0)]
        return list(self._pool.map(body, range(len(self.devices))))

    def average(self, gradients: List[Any]) -> List[Any]:
        """The strategy's own all-reduce."""
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def _take(self, strategy: Any) -> None:
        self.strategy = strategy
        super().__init__(list(strategy.extended.worker_devices))
        self._pool = ThreadPoolExecutor(len(self.devices))  # starts a thread when it is first needed


class MultiWorker(Mirrored):
    """tf.distribute.MultiWorkerMirroredStrategy: one device a rank; ring over gRPC, or NCCL between GPUs."""

    def __init__(self, setup: Setup, pack_mb: Any, collective: str) -> None:
        """Exchange addresses, then join TensorFlow's cluster; `collective` is "ring", "nccl" or "auto"."""
        self._meeting = Meeting(setup.rank, setup.world, meeting_place())
        workers = self._meeting.exchange("%s:%d" % (self._meeting.host, free_port()))
        kinds = tf.distribute.experimental.CommunicationImplementation
        if collective == "auto":
            collective = "nccl" if setup.device == "cuda" else "ring"
        kind = kinds.NCCL if collective == "nccl" else kinds.RING
        # 0: TensorFlow's own choice
        pack = 0 if pack_mb == "auto" else pack_mb << 20
        self.options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=pack, implementation=kind)
        cluster = tf.train.ClusterSpec({"worker": workers})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            cluster, task_type="worker", task_id=setup.rank, rpc_layer="grpc"
        )
        self._take(tf.distribute.MultiWorkerMirroredStrategy(resolver, self.options))
        self.transport = "%s over grpc" % kind.value.lower() if kind == kinds.RING else kind.value.lower()
        self.rank, self.world = setup.rank, self._counted()

    def average(self, gradients: List[Any]) -> List[Any]:
        """The strategy's own all-reduce; each gradient is named on this worker's device, which it insists on."""
        with tf.device(self.devices[0]):
            own = [tf.identity(gradient) for gradient in gradients]
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, own, self.options)

    def maximum(self, value: float) -> float:
        """Over the hosts: the question must not touch a device's queue."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """The first to go may host the service that the others still ask."""
        self._meeting.maximum(0.0)
        self._meeting.close()

    def _counted(self) -> int:
        """How many ranks a collective really joins."""

        @tf.function(autograph=False)
        def together() -> Any:
            def replica(_: int) -> Any:
                with tf.device(self.devices[0]):
                    one = tf.constant(1.0)
                return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, one)

            return self.run(replica)

        return int(together()[0])


def make(setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> Spread:
    """What the setup's strategy is called here."""
    if setup.strategy == "multiworker_mirrored":
        return MultiWorker(setup, knobs["pack_mb"], knobs["collective"])
    return Mirrored(devices, setup.device, knobs["cross_device"]) if setup.strategy == "mirrored" else Spread(devices)
