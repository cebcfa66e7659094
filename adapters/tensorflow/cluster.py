"""Workers and parameter servers of one tf.train.ClusterSpec: all must know all addresses before any starts.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Optional

import tensorflow as tf

from adapters.tensorflow.addresses import free_port, meeting_place
from suite.worker.meeting import Meeting
from suite.worker.sockets import listening


class Member:
    """One process of the cluster, with its TensorFlow server; a worker also meets the other workers."""

    def __init__(self, job: str, number: int, workers: int, servers: int, threads: int) -> None:
        """`job` is "worker" or "ps"; waits for everybody to come."""
        meeting = Meeting(number + (workers if job == "ps" else 0), workers + servers, meeting_place())
        first = job == "worker" and number == 0
        listener = listening((meeting.host, 0)) if first else None
        own = "%s:%d" % (meeting.host, free_port())
        told = meeting.exchange("%s %d" % (own, listener.getsockname()[1]) if listener else own)
        meeting.close()
        at, port = told[0].split()
        self.spec: Dict[str, List[str]] = {"worker": [at] + told[1:workers], "ps": told[workers:]}
        self.workers: Optional[Meeting] = None
        if job == "worker":
            self.workers = Meeting(number, workers, (at.rpartition(":")[0], int(port)), listener)
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
        spec = tf.train.ClusterSpec(self.spec)
        self.server: Any = tf.distribute.Server(spec, job_name=job, task_index=number, config=config)
