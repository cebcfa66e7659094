"""The messages of a rank: rank-N.jsonl in the job's output folder."""

import os
import time

from suite.worker.messages import Message, Progress, encode


class Outbox:
    """A writer of one rank's messages, each written as it is sent: the controller takes them as signs of life.

    A line is appended by one call. So two processes that both believe that they are this rank, as a launcher of another
    MPI makes them, do not write into each other's lines, and both reports can be read.
    """

    PROGRESS_EVERY = 0.25  # seconds

    def __init__(self, folder: str, rank: int) -> None:
        path = os.path.join(folder, "rank-%d.jsonl" % rank)
        self._stream = open(path, "ab", buffering=0)  # noqa: SIM115 - open for the worker's life
        self._next_progress = 0.0

    def send(self, message: Message) -> None:
        """Write one message; ValueError names a field of the wrong type, OSError why it cannot be written."""
        line = encode(message).encode() + b"\n"
        while line:  # a disk that is nearly full takes a part; the next call says why
            line = line[self._stream.write(line) or 0 :]

    def progress(self, name: str, phase: str, step: int, of: int) -> None:
        """Send Progress, unless the last one is too recent; cheap enough for every step."""
        now = time.perf_counter()
        if now >= self._next_progress:
            self._next_progress = now + self.PROGRESS_EVERY
            self.send(Progress(name, phase, step, of))

    def close(self) -> None:
        """Close the file: no message follows."""
        self._stream.close()
