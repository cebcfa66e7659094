"""The processes of one tf.train.ClusterSpec: all must know all addresses before any starts.

Oldest Python: 3.6.
"""

from itertools import islice
from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from adapters.tensorflow.addresses import free_port, meeting_place
from suite.worker.meeting import Meeting
from suite.worker.sockets import listening

JOBS = ("chief", "worker", "ps")  # in the order of their places: the first process of all is the rank 0


class Member:
    """One process of the cluster: a coordinator (chief), a worker or a parameter server."""

    def __init__(self, job: str, number: int, counts: Sequence[int], threads: int) -> None:
        """Wait for everybody to come; `counts`: how many processes each of JOBS has.

        A chief connects to the servers of the others, and has none of its own yet. Workers without a
        chief are ranks, which also meet each other.
        """
        place = sum(counts[: JOBS.index(job)]) + number
        meeting = Meeting(place, sum(counts), meeting_place())
        listener = listening((meeting.host, 0)) if place == 0 and job == "worker" else None
        own = "%s:%d" % (meeting.host, free_port())
        told = meeting.exchange("%s %d" % (own, listener.getsockname()[1]) if listener else own)
        meeting.close()
        at, _, port = told[0].partition(" ")
        addresses = iter([at] + told[1:])
        self.spec: Dict[str, List[str]] = {
            name: list(islice(addresses, count)) for name, count in zip(JOBS, counts) if count
        }
        self.ranks: Optional[Meeting] = None
        if job == "worker" and port:
            self.ranks = Meeting(number, len(self.spec[job]), (at.rpartition(":")[0], int(port)), listener)
        self.server: Any = None if job == "chief" else self._server(job, number, threads)

    def _server(self, job: str, number: int, threads: int) -> Any:
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2)
        spec = tf.train.ClusterSpec(self.spec)
        return tf.distribute.Server(spec, job_name=job, task_index=number, config=config)
