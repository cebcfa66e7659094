"""The job a worker reads and the messages it writes: plain JSON, one versioned format.

History of the format: 1 (the first).

Oldest Python: 3.6.
"""

import json
import os
import time
from typing import Any, Dict

FORMAT = 1
# What tells the libraries of computation how many threads to run; every rank must see them.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# Keys of a job file:
#   format   1
#   task     "measure", "prove", "oracle", "pack", "read", "look" or "comm"
#   trainer  "module:class" inside the bundle
#   case     suite.contracts.case.Case.to_dict()
#   graph    workloads.graph.Graph.to_dict()
#   data     null (synthetic) or {"kind": "arrays" | "folder" | "records", "path": ...}
#   preprocessing  workloads.preprocessing.Preprocessing as a dictionary
#   output   the attempt's folder: rank-N.jsonl and rank-N.log go there
#   oracle   folder of the float64 results, for "prove" and "oracle"
#   parts    ranks that hold one network together; left out: 1
#   batch    samples of a network in the proof
#   pack     what suite.worker.packing.pack wants, for "pack"
#   samples  how many to read, for "read"
#   communicator, comm   "module:class" inside the bundle, and what suite.worker.comm wants, for "comm"


def read_job(path: str) -> Dict[str, Any]:
    """The job; ValueError when its format is not ours."""
    with open(path) as stream:
        job: Dict[str, Any] = json.load(stream)
    if job.get("format") != FORMAT:
        raise ValueError("%s has format %r; this worker reads format %d" % (path, job.get("format"), FORMAT))
    return job


class Outbox:
    """One rank's messages, a JSON object a line, each flushed as it is written.

    Types: hello, joined, phase, progress, pass, layers, training, notes, proof, comm, wire, failed, done.
    The controller takes the growth of this file as the sign of life.
    """

    PROGRESS_EVERY = 0.25  # seconds

    def __init__(self, folder: str, rank: int) -> None:
        """Open rank-N.jsonl for writing."""
        self._stream = open(os.path.join(folder, "rank-%d.jsonl" % rank), "w")  # noqa: SIM115 - open for the worker's life
        self._next_progress = 0.0

    def send(self, type: str, **content: Any) -> None:
        """Write one message; not-a-number is written as null."""
        self._stream.write(json.dumps(finite(dict(content, type=type, time=time.time()))) + "\n")
        self._stream.flush()

    def progress(self, **content: Any) -> None:
        """A message about progress, dropped when the last one is too recent."""
        now = time.perf_counter()
        if now >= self._next_progress:
            self._next_progress = now + self.PROGRESS_EVERY
            self.send("progress", **content)

    def close(self) -> None:
        """Nothing more will be said."""
        self._stream.close()


def finite(value: Any) -> Any:
    """The value with every NaN and infinity replaced by None: JSON has neither."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
