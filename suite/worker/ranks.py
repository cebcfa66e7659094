"""This process as a rank: its number, as the launcher or the engine has set it, and the writer of its messages."""

import os
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import Iterator, Mapping, NamedTuple, Optional

from stagebench.suite.worker.machine import field
from stagebench.suite.worker.messages import Message, Phase, Progress, encode


class Rank(NamedTuple):
    """The numbers of a rank."""

    rank: int
    world: int
    local_rank: int


OWN = ("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK")
# "RANK,WORLD,LOCAL": an engine's own (stagebench.suite.contracts.launcher.RankVariables)
NAMES = "STAGEBENCH_RANK_VARIABLES"


def own_rank(environ: Optional[Mapping[str, str]] = None) -> Rank:
    """Return the rank that this process was started as; without any variables, it is rank 0 of 1.

    KeyError if the engine did not set the variable that is named for its rank.
    """
    environ = os.environ if environ is None else environ
    if OWN[0] not in environ and NAMES not in environ:
        return Rank(0, 1, 0)
    rank, world, local = OWN if OWN[0] in environ else environ[NAMES].split(",")
    if rank not in environ:
        raise KeyError(f"{NAMES} names {rank}, which the engine did not set; correct the launcher's RankVariables")
    number = int(environ[rank])
    return Rank(number, int(environ.get(world, "1")), int(environ.get(local, number)))


class Spent(NamedTuple):
    """The work of a process so far."""

    cpu_s: float
    bytes_read: int


def spent() -> Spent:
    """Return what this process, and those that it waited for, have computed and read so far."""
    times = os.times()
    return Spent(sum(times[:4]), int(field("/proc/self/io", "rchar") or 0))


class Outbox:
    """A writer of one rank's messages, each written as it is sent: the controller takes them as signs of life.

    A line is appended by one call. So two processes that both believe that they are this rank, as a launcher of another
    MPI makes them, do not write into each other's lines, and both reports can be read.
    """

    PROGRESS_EVERY = 0.25  # seconds
    LOOK_EVERY = 5.0  # ... between two looks at what a silent process has done
    WORK_S = 0.05  # of CPU time in between: waiting takes less, and a busy machine may grant little more

    def __init__(self, folder: str, rank: int) -> None:
        self.folder = folder  # the job's output folder
        self._stream = open(f"{folder}/rank-{rank}.jsonl", "ab", buffering=0)  # noqa: SIM115 - open for the worker's life
        self._next_progress = 0.0
        self._name = ""  # of the phase

    def send(self, message: Message) -> None:
        """Write one message; ValueError names a field of the wrong type, OSError why it cannot be written."""
        self._name = message.name if isinstance(message, Phase) else self._name
        line = encode(message).encode() + b"\n"
        while line:  # a disk that is nearly full takes a part; the next call says why
            line = line[self._stream.write(line) or 0 :]

    def progress(self, name: str, phase: str, step: int, of: int) -> None:
        """Send Progress, unless the last one is too recent; cheap enough for every step."""
        now = time.perf_counter()
        if now >= self._next_progress:
            self._next_progress = now + self.PROGRESS_EVERY
            self.send(Progress(name, phase, step, of))

    @contextmanager
    def at_work(self, alone: bool = True) -> Iterator[None]:
        """Report progress for as long as this process computes or reads, within a call that reports none itself.

        A compiler or a decoder may take longer than the silence limit. A process that is not `alone` may compute
        because it waits for others, and may wait for ever: then nothing is reported.
        """
        over = Event()

        def watch() -> None:
            began, before = time.perf_counter(), spent()
            while not over.wait(self.LOOK_EVERY):
                now, seconds = spent(), int(time.perf_counter() - began)
                if now.cpu_s - before.cpu_s > self.WORK_S or now.bytes_read - before.bytes_read > 1 << 20:
                    self.progress(self._name, "at work, seconds", seconds, seconds)
                before = now

        thread = Thread(target=watch, daemon=True)
        if alone:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if alone:
                thread.join()

    def close(self) -> None:
        """Close the file: no message follows."""
        self._stream.close()
