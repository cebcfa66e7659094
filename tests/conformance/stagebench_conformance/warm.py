"""Ranks that are forked from a process which has imported the framework already, in place of importing it every time.

Most of a short test is `import tensorflow`. With `Conformance.warm` a server is started for each interpreter, bundle
and set of variables; it imports the framework and forks a process for every rank and sidecar (`warm_server`). What the
group of an attempt, or an mpiexec, starts and watches is a program that stands for the forked one (`warm_rank`).
The workers of pytest-xdist share their servers: each holds a server's standard input, a FIFO, open while it uses it.
"""

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from stagebench_conformance import warm_rank, warm_server
from suite.contracts.launcher import Process, starters
from suite.plugins import adapters, launchers
from suite.processes import group as processes
from suite.processes.query import inherited

# Each rank's, attempt's or test's: set in the forked process, and nothing that a framework reads when it is imported.
OWN = {"PYTEST_CURRENT_TEST", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"}
OWN |= {"STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK"}
OWN |= {"PYTEST_XDIST_WORKER", "PRTE_MCA_prte_local_tmpdir_base"}
MOST = 4  # servers at once: each holds a framework in memory


@dataclass(frozen=True)
class Server:
    """A process that forks ranks, listening at `place` as soon as it has imported everything."""

    place: Path
    pid: int
    users: int  # the writing end of its standard input: it leaves when no process has one
    started: "subprocess.Popen[bytes] | None" = None  # by this process


@dataclass
class Servers:
    """Those that this process uses; the one that it has not used for longest makes room. `folder` may be shared."""

    folder: Path
    running: "OrderedDict[str, Server]" = field(default_factory=OrderedDict)
    left: list[Server] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._held = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_SH)

    def tokens(self, process: Process) -> tuple[str, ...]:
        """What is to be started: a stand-in for a program of a bundle, an engine's too; any other as it is."""
        for place, token in enumerate(process.tokens):
            bundle = bundle_of(token)
            if bundle is not None:  # INTERPRETER -B -u PROGRAM, as `suite.processes.bundle` writes it
                engine, program = process.tokens[: place - 3], process.tokens[place - 3 :]
                server = self._server(program[0], bundle, process.environ)
                stand_in = (sys.executable, "-I", "-S", warm_rank.__file__, str(server.place), str(server.pid))
                return (*engine, *stand_in, *program)
        return tuple(process.tokens)

    def close(self) -> None:
        """Use none any more, and wait for the end of those that were started here; the last process clears up."""
        while self.running:
            self._leave()
        for server in self.left:
            if server.started:
                server.started.wait()
        with suppress(BlockingIOError):
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._held)

    def _leave(self) -> None:
        self.left.append(self.running.popitem(last=False)[1])
        os.close(self.left[-1].users)

    def _server(self, interpreter: str, bundle: Path, environ: Mapping[str, str]) -> Server:
        common = {name: value for name, value in {**inherited(), **environ}.items() if name not in OWN}
        about = json.loads((bundle / "bundle.json").read_text())
        key = hashlib.sha256(json.dumps([interpreter, about["digest"], sorted(common.items())]).encode()).hexdigest()
        if key not in self.running:
            while len(self.running) >= MOST:
                self._leave()
            place = self.folder / key[:12]
            with warm_server.alone(str(self.folder)):
                self.running[key] = joined(place) or started(place, interpreter, bundle, modules(about), common)
        self.running.move_to_end(key)
        return self.running[key]


def joined(place: Path) -> Server | None:
    """The server at a place that another process started; None where there is none."""
    try:
        users = os.open(f"{place}.users", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # no such file; ENXIO: it died
        return None
    return Server(place, int(Path(f"{place}.pid").read_text()), users)


def started(place: Path, interpreter: str, bundle: Path, imports: list[str], common: dict[str, str]) -> Server:
    """A server of its own copy of the bundle: a test's folder may be gone before its server is."""
    kept, fifo = f"{place}-bundle", Path(f"{place}.users")
    shutil.copytree(bundle, kept, dirs_exist_ok=True)
    for old in (place, fifo):
        old.unlink(missing_ok=True)
    os.mkfifo(fifo)
    reading = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    users = os.open(fifo, os.O_WRONLY)
    tokens = [interpreter, "-B", "-u", warm_server.__file__, kept, str(place), *imports]
    with open(f"{place}.log", "wb") as log:
        process = subprocess.Popen(tokens, env=common, stdin=reading, stdout=log, stderr=log, start_new_session=True)
    os.close(reading)
    Path(f"{place}.pid").write_text(str(process.pid))
    return Server(place, process.pid, users, process)


def modules(about: dict[str, Any]) -> list[str]:
    """The modules that a server imports: those that its adapter requires, and its strategies' trainers.

    The trainer of a strategy that only an engine can start is imported by its ranks: importing MPI joins it.
    """
    adapter = adapters().get(about["adapter"])
    if adapter is None:
        return [about["package"]]
    strategies = [each for each in adapter.capabilities.strategies if "local" in starters(each, launchers())]
    return list(dict.fromkeys((*adapter.requires, *(each.trainer.partition(":")[0] for each in strategies))))


def bundle_of(program: str) -> Path | None:
    """The bundle that a program is of: the folder itself, whose worker it is, or one of its files."""
    path = Path(program)
    return next((folder for folder in (path, *path.parents) if (folder / "bundle.json").exists()), None)


_servers: list[Servers] = []


def servers() -> Servers:
    """This process's, made when they are first asked for; sockets want a short path."""
    if not _servers:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid4().hex)[:12]
        _servers.append(Servers(Path(tempfile.gettempdir(), f"warm-{run}")))
        atexit.register(_servers[0].close)
    return _servers[0]


def use(patch: pytest.MonkeyPatch, sidecars: bool = True) -> None:
    """Fork the ranks of every attempt that is started until the patch is undone; their sidecars, too, if asked."""
    guarded = processes.guarded

    def forked(process: Process) -> list[str]:
        fresh = process.sidecar and not sidecars
        return guarded(process if fresh else replace(process, tokens=servers().tokens(process)))

    patch.setattr(processes, "guarded", forked)
