"""The meeting of TensorFlow's processes, and its collectives without a training.

Each process must know all addresses before it starts its server. All-reduce and all-gather are those of
MultiWorkerMirroredStrategy. Its broadcast is an operation of the runtime: the strategy uses it for the first values of
variables.
"""

from itertools import islice
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.suite.worker.communicator import Communicator, Exchange
from stagebench.suite.worker.contract import Group, Joined, Setup, Unsupported, chosen
from stagebench.suite.worker.meeting import Meeting, listening
from stagebench.suite.worker.rendezvous import free_port, meeting_place

OWN_GROUP = 1 << 20  # a group key above those of the strategy
FIRST_INSTANCE = 1 << 20
JOBS = ("chief", "worker", "ps")  # in the order of their places: the first process is rank 0


class Member:
    """A process of a cluster with parameter servers: a coordinator (chief), a worker or a server."""

    def __init__(self, job: str, number: int, counts: Sequence[int], threads: int) -> None:
        """Wait for all processes; `counts` are the numbers of processes of each of JOBS.

        A chief connects to the others' servers, and has none of its own yet. Workers without a chief are ranks, which
        also meet each other.
        """
        place = sum(counts[: JOBS.index(job)]) + number
        meeting = Meeting(place, sum(counts), meeting_place("TensorFlow's ranks"))
        listener = listening((meeting.host, 0)) if place == 0 and job == "worker" else None
        address = f"{meeting.host}:{free_port()}"
        addresses = meeting.exchange(f"{address} {listener.getsockname()[1]}" if listener else address)
        meeting.close()
        first, _, port = addresses[0].partition(" ")
        servers = iter([first] + addresses[1:])
        self.spec: Dict[str, List[str]] = {
            name: list(islice(servers, count)) for name, count in zip(JOBS, counts) if count
        }
        self.ranks: Optional[Meeting] = None
        if job == "worker" and port:
            self.ranks = Meeting(number, len(self.spec[job]), (first.rpartition(":")[0], int(port)), listener)
        self.server: Any = None
        if job != "chief":
            config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
            spec = tf.train.ClusterSpec(self.spec)
            self.server = tf.distribute.Server(spec, job_name=job, task_index=number, config=config)


class WorkerGroup(Group):
    """The ranks of a MultiWorkerMirroredStrategy, one device each, and a meeting for what the strategy lacks."""

    def __init__(self, setup: Setup) -> None:
        """Exchange addresses, then join TensorFlow's cluster, by the knobs `collective` and `pack_mb`."""
        self._meeting = Meeting(setup.rank, setup.world, meeting_place("TensorFlow's ranks"))
        workers = self._meeting.exchange(f"{self._meeting.host}:{free_port()}")
        kinds = tf.distribute.experimental.CommunicationImplementation
        by_device = "nccl" if setup.device == "cuda" else "ring"
        kind = kinds.NCCL if chosen(setup, "collective", default=by_device) == "nccl" else kinds.RING
        pack = chosen(setup, "pack_mb", default=0) << 20  # 0: TensorFlow's own choice
        self.options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=pack, implementation=kind)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=setup.rank, rpc_layer="grpc"
        )
        self.distribution: Any = tf.distribute.MultiWorkerMirroredStrategy(resolver, self.options)
        (self.device,) = self.distribution.extended.worker_devices
        self.transport = f"{kind.value.lower()} over grpc" if kind == kinds.RING else kind.value.lower()

        def replica() -> Any:
            with tf.device(self.device):
                one = tf.constant(1.0)
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, one)

        self.world = int(tf.function(lambda: self.distribution.run(replica), autograph=False)())

    def maximum(self, value: float) -> float:
        """Return the largest value, by sockets: a device's queue must not be touched."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        self._meeting.leave()


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
        raise Unsupported(f"TensorFlow has no {operation} between CPUs; it has all-reduce, all-gather and broadcast")

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
