"""This process as a rank: its number, as the launcher or the engine has set it, and the writer of its messages."""

import os
import time
from typing import Mapping, NamedTuple, Optional

from suite.worker.messages import Message, Progress, encode

Rank = NamedTuple("Rank", [("rank", int), ("world", int), ("local_rank", int)])

OWN = ("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK")
NAMES = "STAGEBENCH_RANK_VARIABLES"  # "RANK,WORLD,LOCAL": an engine's own (suite.contracts.launcher.RankVariables)


def own_rank(environ: Optional[Mapping[str, str]] = None) -> Rank:
    """Return the rank that this process was started as; without any variables, it is rank 0 of 1.

    KeyError if the engine did not set the variable that is named for its rank.
    """
    environ = os.environ if environ is None else environ
    if OWN[0] not in environ and NAMES not in environ:
        return Rank(0, 1, 0)
    rank, world, local = OWN if OWN[0] in environ else environ[NAMES].split(",")
    if rank not in environ:
        raise KeyError(
            "%s names %s, which the engine did not set; correct the launcher's RankVariables" % (NAMES, rank)
        )
    number = int(environ[rank])
    return Rank(number, int(environ.get(world, "1")), int(environ.get(local, number)))


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
