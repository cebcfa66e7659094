"""What the campaign sees of a run from outside: every process that comes of it, every record that it has finished."""

import ctypes
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
SLURM = ("slurmctld", "slurmd", "slurmscriptd")  # its daemons, which belong to a host
LOOK = 0.02  # seconds
Processes = list[psutil.Process]


def adopt() -> None:
    """From now on the kernel hands to this process whatever one of its descendants leaves behind (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def reap() -> None:
    """Forget adopted ones that have ended; nobody here may still wait for a child."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(but: Iterable[psutil.Process] = ()) -> Processes:
    """All processes below this one that work; where it has adopted, none can leave."""
    return [each for each in set(psutil.Process().children(recursive=True)) - set(but) if works(each)]


def works(process: psutil.Process) -> bool:
    """Whether it is neither dead nor one of Slurm's daemons."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.name() not in SLURM
    except psutil.Error:
        return False


class Records:
    """A run's record files, followed while others write and damage them."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self._folder = folder
        self.finished: dict[str, str] = {}  # file name of each that was `ok` once, digest as it was first seen
        self._broken: dict[str, str] = {}  # what became of those that did not stay so
        self._damaged: dict[str, str] = {}  # digest of each that the campaign itself has damaged
        self._seen: dict[str, tuple[int, ...]] = {}
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Look all the time, and a last time at the end."""
        over = threading.Event()

        def follow() -> None:
            while not over.wait(LOOK):
                self.look()

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
            self.look()

    def look(self) -> None:
        """Learn of new ones, and whether the others are as they were."""
        with self._one_at_a_time:
            there = os.listdir(self._folder) if self._folder.is_dir() else []
            for name in {*self.finished, *(name for name in there if name.endswith(".json"))}:
                self._look_at(name)

    def _look_at(self, name: str) -> None:
        path = self._folder / name
        try:
            found = path.lstat()
            signature = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)
            if self._seen.get(name) == signature:
                return
            content = path.read_bytes()
        except OSError as error:
            if name in self.finished:
                self._broken.setdefault(name, f"{name}, which was finished, cannot be read: {error.strerror}")
            return
        self._seen[name] = signature
        digest = hashlib.sha256(content).hexdigest()
        if self.finished.get(name, digest) != digest:
            self._broken.setdefault(name, f"{name}, which was finished, was altered or measured again")
        elif well(content) and self._damaged.get(name) != digest:
            self.finished[name] = digest

    def damage(self, name: str, content: bytes) -> None:
        """Write something else in its place, which is no longer expected to stay."""
        with self._one_at_a_time:
            del self.finished[name]
            self._damaged[name] = hashlib.sha256(content).hexdigest()
            (self._folder / name).write_bytes(content)

    def harm(self) -> list[str]:
        """What became of the finished ones that did not stay as they were, by what is there now, too."""
        self._seen.clear()  # read all again
        self.look()
        return list(self._broken.values())


def well(content: bytes) -> bool:
    """Whether it is a record of a measurement that went well."""
    try:
        return bool(json.loads(content)["outcome"] == "ok")
    except (ValueError, KeyError, TypeError):
        return False
