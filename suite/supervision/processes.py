"""A group of processes: started together, ended together, nothing left behind."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from suite.contracts.launcher import Process
from suite.environments.inherited import inherited
from suite.supervision import guard, reaper

MARKER = "STAGEBENCH_ATTEMPT"  # in every process's environment: Open MPI's daemons leave session and parent
FORCED = 5.0  # seconds after SIGKILL; after SIGTERM it is the processes' patience


@dataclass(frozen=True)
class Death:
    """How and when a started process ended."""

    index: int  # of the process in the group
    rank: int | None
    code: int  # exit code; -N for signal N
    time_s: float  # seconds since the epoch, as in the ranks' messages
    ours: bool  # after we had begun to end the group


class Group:
    """Processes in sessions of their own, in `folder`, each with its launcher-N.log."""

    def __init__(self, processes: list[Process], folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        self._waiters: list[threading.Thread] = []
        self._deaths: list[Death] = []
        self._changed = threading.Event()
        self._ending = False

    def start(self) -> None:
        """Start them all; one that cannot be started ends with guard.CANNOT_START and says why in its log."""
        tell_reaper(f"+ {self._mark} {max((process.patience for process in self._processes), default=0.0)}")
        for index, process in enumerate(self._processes):
            self._start(index, process)

    def _start(self, index: int, process: Process) -> None:
        with (self._folder / f"launcher-{index}.log").open("wb") as log:
            child = subprocess.Popen(
                guarded(process),
                env={**inherited(), **process.environ, MARKER: self._mark},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(child)
        waiter = threading.Thread(target=self._wait_for, args=(index, child.pid), daemon=True)
        self._waiters.append(waiter)
        waiter.start()

    def alive(self) -> bool:
        """Whether any of the started processes runs that is not a mere sidecar."""
        dead = {death.index for death in self._deaths}
        return any(not process.sidecar for index, process in enumerate(self._processes) if index not in dead)

    def deaths(self) -> list[Death]:
        """Those that have ended, in that order."""
        return list(self._deaths)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a process ends."""
        self._changed.wait(seconds)
        self._changed.clear()

    def end(self) -> None:
        """End every process of the group and what it started; also when all went well."""
        self._ending = True
        try:
            self._signal_all(signal.SIGTERM, max((process.patience for process in self._processes), default=0.0))
        finally:  # also when a person interrupts the politeness
            self._signal_all(signal.SIGKILL, FORCED)
            for waiter in self._waiters:
                waiter.join(FORCED)
            for child in self._started:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(FORCED)
            tell_reaper(f"- {self._mark}")

    def _wait_for(self, index: int, pid: int) -> None:
        # Not reaped before the group has ended: until then its number cannot become another process's.
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        self._deaths.append(Death(index, self._processes[index].rank, code, time.time(), self._ending))
        self._changed.set()

    def _signal_all(self, number: signal.Signals, patience: float) -> None:
        deadline = time.monotonic() + patience
        signalled: set[psutil.Process] = set()
        while survivors := self._survivors():
            for process in survivors - signalled:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            signalled |= survivors
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def _survivors(self) -> set[psutil.Process]:
        """Running processes with our mark, in our sessions, or descended from such."""
        sessions = {child.pid for child in self._started}
        ours = {process for process in psutil.process_iter() if self._belongs(process, sessions)}
        return set(running(ours | {child for process in ours for child in descendants(process)}))

    def _belongs(self, process: psutil.Process, sessions: set[int]) -> bool:
        try:
            return os.getsid(process.pid) in sessions or process.environ().get(MARKER) == self._mark
        except (OSError, psutil.Error):  # gone, or somebody else's
            return False


@cache
def _reaper() -> "subprocess.Popen[bytes]":
    """Of this controller; it ends when its standard input closes."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, MARKER],
        bufsize=0,
        env={name: value for name, value in inherited().items() if name != MARKER},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(child.communicate)
    return child


def tell_reaper(line: str) -> None:
    """What is to be ended should this process be killed; nothing where somebody has ended the reaper, too."""
    stream = _reaper().stdin
    assert stream is not None
    with suppress(OSError):
        stream.write(f"{line}\n".encode())


def guarded(process: Process) -> list[str]:
    """The tokens to start a process with: a rank dies with us at once, an engine is asked to end its ranks."""
    number = signal.SIGTERM if process.rank is None else signal.SIGKILL
    return [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(int(number)), *process.tokens]


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Children, their children and so on, that have not been handed to init."""
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def running(processes: Iterable[psutil.Process]) -> Iterable[psutil.Process]:
    """Those that are not merely waiting to be reaped."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
