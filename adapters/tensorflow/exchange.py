"""The meeting of TensorFlow's processes: each must know all addresses before it starts its server."""

from itertools import islice
from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from suite.worker.contract import Group, Setup, chosen
from suite.worker.meeting import Meeting, listening
from suite.worker.rendezvous import free_port, meeting_place

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
        address = "%s:%d" % (meeting.host, free_port())
        addresses = meeting.exchange("%s %d" % (address, listener.getsockname()[1]) if listener else address)
        meeting.close()
        first, _, port = addresses[0].partition(" ")
        servers = iter([first] + addresses[1:])
        self.spec: Dict[str, List[str]] = {
            name: list(islice(servers, count)) for name, count in zip(JOBS, counts) if count
        }
        self.ranks: Optional[Meeting] = None
        if job == "worker" and port:
            self.ranks = Meeting(number, len(self.spec[job]), (first.rpartition(":")[0], int(port)), listener)
        self.server: Any = None if job == "chief" else self._server(job, number, threads)

    def _server(self, job: str, number: int, threads: int) -> Any:
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
        spec = tf.train.ClusterSpec(self.spec)
        return tf.distribute.Server(spec, job_name=job, task_index=number, config=config)


class WorkerGroup(Group):
    """The ranks of a MultiWorkerMirroredStrategy, one device each, and a meeting for what the strategy lacks."""

    def __init__(self, setup: Setup) -> None:
        """Exchange addresses, then join TensorFlow's cluster, by the knobs `collective` and `pack_mb`."""
        self._meeting = Meeting(setup.rank, setup.world, meeting_place("TensorFlow's ranks"))
        workers = self._meeting.exchange("%s:%d" % (self._meeting.host, free_port()))
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
        self.transport = "%s over grpc" % kind.value.lower() if kind == kinds.RING else kind.value.lower()
        self.world = self._counted()

    def maximum(self, value: float) -> float:
        """Return the largest value, by sockets: a device's queue must not be touched."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        self._meeting.leave()

    def _counted(self) -> int:

        def replica() -> Any:
            with tf.device(self.device):
                one = tf.constant(1.0)
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, one)

        return int(tf.function(lambda: self.distribution.run(replica), autograph=False)())
