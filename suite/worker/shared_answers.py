"""A predictor's answers, for a model server's process: queries and answers lie in memory that both share.

A file holds a place for each worker of the server: two times, its queries, then its answers. A number through a socket
says how many queries lie there; the same number back says that their answers do. The times are when a worker began to
hand over its last batch and when it had taken the answers: both sides read one clock.

Oldest Python: 3.6, standard library only: it runs in a model server's own environment.
"""

import json
import mmap
import os
import socket
import struct
import threading
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

LINE = 64  # bytes of a cache line
NUMBER = struct.Struct("<i")
TIMES = struct.Struct("<dd")
VARIABLE = "STAGEBENCH_SERVED"  # names the file of `Served`


class Served(NamedTuple):
    """The settings of a model server: its address, its batches, and the way to the predictor."""

    host: str
    port: int
    batch: int  # queries that are answered together, at most
    max_delay_ms: float  # that the oldest of them waits for others
    workers: int
    socket: str
    memory: str  # the shared file
    query_bytes: int  # of a query of one sample
    answer_bytes: int
    query_type: str  # NumPy's name: "float32"
    answer_type: str
    query_shape: List[int]  # without a batch's dimension
    answer_shape: List[int]
    options: Dict[str, Any] = {}  # the server's own, by its names
    protocol: str = "raw"  # one of stagebench.suite.worker.protocols


def served() -> Served:
    """Return the settings of the model server that this process belongs to."""
    with open(os.environ[VARIABLE]) as stream:
        return Served(**json.load(stream))


def bounds(told: Served, place: int) -> Tuple[int, int, int]:
    """Return where a place's queries begin, where its answers do, and where it ends; its times are a LINE before them.

    Each is a whole number of cache lines.
    """
    queries, answers = (-(-told.batch * size // LINE) * LINE for size in (told.query_bytes, told.answer_bytes))
    begin = place * (LINE + queries + answers) + LINE
    return begin, begin + queries, begin + queries + answers


class Answers:
    """The connection of a worker to the predictor; a worker that forks makes its own afterwards."""

    def __init__(self, told: Served) -> None:
        """Connect; ConnectionError if the predictor is gone, or has no place left for a worker."""
        self._told = told
        self._turn = threading.Lock()
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(told.socket)
        self._taken = 0.0  # when the answers to the batch before were there
        place = self._number()
        with open(told.memory, "r+b") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0))
        begin, middle, end = bounds(told, place)
        self._times = whole[begin - LINE : begin]
        self._queries, self._answers = whole[begin:middle], whole[middle:end]

    def of(self, queries: Sequence[Any]) -> List[bytes]:
        """Return the answers to queries, which are bytes; ValueError for one of another length. Threads take turns."""
        with self._turn:
            begin, size = time.perf_counter(), self._told.query_bytes
            for number, query in enumerate(queries):
                if len(query) != size:
                    raise ValueError(f"a query has {len(query)} bytes, not {size}")
                self._queries[number * size : (number + 1) * size] = query
            TIMES.pack_into(self._times, 0, begin, self._taken)
            self._link.sendall(NUMBER.pack(len(queries)))
            size = self._told.answer_bytes
            found = [bytes(self._answers[number * size : (number + 1) * size]) for number in range(self._number())]
            self._taken = time.perf_counter()
            TIMES.pack_into(self._times, 0, begin, self._taken)
            return found

    def _number(self) -> int:
        got = self._link.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(got) < NUMBER.size:
            raise ConnectionError("the predictor has closed the connection")
        number: int = NUMBER.unpack(got)[0]
        return number
