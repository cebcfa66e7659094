"""A group of processes: started together, ended together, no process left behind."""

import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from stagebench.suite.contracts.launcher import Process
from stagebench.suite.processes.query import inherited
from stagebench.suite.worker.guard import CANNOT_START
from stagebench.suite.worker.guard import guarded as behind_guard

MARKER = "STAGEBENCH_ATTEMPT"  # in the environment: marks what a process leaves behind if its guard is killed
FORCED = 5.0  # seconds for processes to end after SIGKILL
UNDONE = 15.0  # ... for a process's `undo`
GUARD = 1.0  # ... for a guard to end after all that it guards
# Seconds for what a rank leaves behind: the rank's death must be known before others' reports of it (outcome.AHEAD).
LEFT = 0.5


@dataclass(frozen=True)
class Death:
    """How and when a started process ended."""

    index: int  # of the process in the group
    rank: int | None
    code: int  # exit code; -N for signal N
    time_s: float  # seconds since the epoch, as in the ranks' messages
    ours: bool  # after we had begun to end the group


class Group:
    """Processes in sessions of their own, in `folder`, each with its guard and its launcher-N.log."""

    def __init__(self, processes: list[Process], folder: Path) -> None:
        self._processes, self._folder = processes, folder
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        # One for each started process. Its thread is not joined: if Ctrl-C breaks a join, Python takes it for ended.
        self._ended: list[threading.Event] = []
        self._deaths: list[Death] = []
        self._changed = threading.Event()
        self._ending = False

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self) -> None:
        """Start all processes; one that cannot be started ends with CANNOT_START, and its log says why."""
        for index, process in enumerate(self._processes):
            self._start(index, process)

    def _start(self, index: int, process: Process) -> None:
        with (self._folder / f"launcher-{index}.log").open("wb") as log:
            try:
                child = subprocess.Popen(
                    guarded(process),
                    env={**inherited(), **process.environ, MARKER: self._mark},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:  # as where there are too many processes already
                log.write(f"cannot start {process.tokens[0]}: {error.strerror}\n".encode())
                self._deaths.append(Death(index, process.rank, CANNOT_START, time.time(), self._ending))
                return
        self._started.append(child)
        self._ended.append(ended := threading.Event())
        threading.Thread(target=self._wait_for, args=(index, child.pid, ended), daemon=True).start()

    def alive(self) -> bool:
        """Return whether any process runs that is not a sidecar."""
        dead = {death.index for death in self._deaths}
        return any(not process.sidecar for index, process in enumerate(self._processes) if index not in dead)

    def deaths(self) -> list[Death]:
        """Return how processes have ended so far, in order."""
        return list(self._deaths)

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as a process ends."""
        self._changed.wait(seconds)
        self._changed.clear()

    def end(self) -> None:
        """End every process of the group and all that it has started; also when all went well."""
        self._ending = True
        left = [child for child in self._started if child.returncode is None]  # not reaped: its number is still its own
        if not left:
            return
        try:
            for child in left:
                os.kill(child.pid, signal.SIGTERM)
            deadline = time.monotonic() + FORCED + max(process.patience for process in self._processes)
            for ended in self._ended:
                ended.wait(max(0.0, deadline - time.monotonic()))
        finally:  # also when a person interrupts the politeness
            self._kill()
            self._undo()

    def _wait_for(self, index: int, pid: int, ended: threading.Event) -> None:
        # Not reaped before the group has ended: until then its number cannot become another process's.
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert found is not None
        code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        self._deaths.append(Death(index, self._processes[index].rank, code, time.time(), self._ending))
        ended.set()
        self._changed.set()

    def _kill(self) -> None:
        """Kill the processes that no guard has ended, then guards that stay, as a stopped one does."""
        deadline, found = time.monotonic() + FORCED, self._found()
        while (survivors := running(found)) and time.monotonic() < deadline:
            for process in survivors:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.02)
            found |= self._found()
        for process in found:  # a container's first process is handed what others leave behind
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        for child, ended in zip(self._started, self._ended, strict=False):
            if not ended.wait(GUARD):
                os.kill(child.pid, signal.SIGKILL)
            if ended.wait(FORCED):  # or its waiter would be left without a child to wait for
                child.wait()

    def _undo(self) -> None:
        """End what killed processes hold elsewhere; remove what any process keeps outside the attempt's folder."""
        for tokens in [self._processes[death.index].undo for death in self._deaths if death.code < 0]:
            if tokens:
                with suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(behind_guard(tokens, 0.0, 0.0), capture_output=True, timeout=UNDONE, check=False)
        for process in self._processes:
            if process.scratch:
                shutil.rmtree(process.scratch, ignore_errors=True)

    def _found(self) -> set[psutil.Process]:
        """Return the processes with the group's mark, in its sessions, or descended from such; without the guards."""
        guards = {child.pid for child in self._started}  # and leaders of the sessions
        ours: set[psutil.Process] = set()
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):  # ended, or another user's
                if os.getsid(process.pid) in guards or process.environ().get(MARKER) == self._mark:
                    ours.add(process)
        for process in list(ours):
            with suppress(psutil.Error):
                ours |= set(process.children(recursive=True))  # whom the kernel has not handed to init
        return {process for process in ours if process.pid not in guards}


def guarded(process: Process) -> list[str]:
    """Return the tokens that start a process behind a guard."""
    left = process.patience if process.rank is None else LEFT
    return behind_guard(process.tokens, process.patience, left)


def running(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that are not merely waiting to be reaped."""
    alive = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive
