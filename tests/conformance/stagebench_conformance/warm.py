"""Ranks that are forked from a process which has imported the framework already, in place of importing it every time.

Most of a short test is `import tensorflow`. With `Conformance.warm` a server is started for each interpreter, bundle
and set of variables; it imports the framework and forks a process for every rank and sidecar (`warm_server`). What the
group of an attempt, or an mpiexec, starts and watches is a program that stands for the forked one (`warm_rank`).
"""

import atexit
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stagebench.suite.contracts.launcher import Process, starters
from stagebench.suite.plugins import adapters, launchers
from stagebench.suite.processes import group as processes
from stagebench.suite.processes.query import inherited
from stagebench_conformance import warm_rank, warm_server

# Each rank's, attempt's or test's: set in the forked process, and nothing that a framework reads when it is imported.
OWN = {"PYTEST_CURRENT_TEST", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"}
OWN |= {"STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK"}
OWN |= {"PRTE_MCA_prte_local_tmpdir_base"}  # Open MPI's own folder, of each mpiexec another
MOST = 4  # servers at once: each holds a framework in memory


@dataclass(frozen=True)
class Server:
    """A process that forks ranks, listening at `place` as soon as it has imported everything."""

    place: Path
    process: "subprocess.Popen[bytes]"

    def close(self) -> None:
        """Ask it to leave: ranks that it has forked end by themselves."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Servers:
    """Those of this process; the one that has not been used for longest makes room."""

    folder: Path
    running: "OrderedDict[str, Server]" = field(default_factory=OrderedDict)

    def tokens(self, process: Process) -> tuple[str, ...]:
        """What is to be started: a stand-in for a program of a bundle, an engine's too; any other as it is."""
        for place, token in enumerate(process.tokens):
            bundle = bundle_of(token)
            if bundle is not None:  # INTERPRETER -B -u PROGRAM, as `stagebench.suite.processes.bundle` writes it
                engine, program = process.tokens[: place - 3], process.tokens[place - 3 :]
                server = self._server(program[0], bundle, process.environ)
                stand_in = (sys.executable, "-I", "-S", warm_rank.__file__, str(server.place), str(server.process.pid))
                return (*engine, *stand_in, *program)
        return tuple(process.tokens)

    def close(self) -> None:
        """End all."""
        while self.running:
            self.running.popitem()[1].close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _server(self, interpreter: str, bundle: Path, environ: Mapping[str, str]) -> Server:
        common = {name: value for name, value in {**inherited(), **environ}.items() if name not in OWN}
        about = json.loads((bundle / "bundle.json").read_text())
        key = hashlib.sha256(json.dumps([interpreter, about["digest"], sorted(common.items())]).encode()).hexdigest()
        if key not in self.running:
            while len(self.running) >= MOST:
                self.running.popitem(last=False)[1].close()
            kept = self.folder / f"{key[:12]}-bundle"  # a test's own folder may be gone before its server is
            shutil.copytree(bundle, kept, dirs_exist_ok=True)
            self.running[key] = self._started(interpreter, kept, modules(about), common, key[:12])
        self.running.move_to_end(key)
        return self.running[key]

    def _started(self, interpreter: str, bundle: Path, imports: list[str], common: dict[str, str], name: str) -> Server:
        place = self.folder / name
        place.unlink(missing_ok=True)
        tokens = [interpreter, "-B", "-u", warm_server.__file__, str(bundle), str(place), *imports]
        with (self.folder / f"{name}.log").open("wb") as log:
            return Server(
                place,
                subprocess.Popen(
                    tokens, env=common, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                ),
            )


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
    """This process's, made when they are first asked for; its sockets want a short path."""
    if not _servers:
        _servers.append(Servers(Path(tempfile.mkdtemp(prefix="warm-"))))
        atexit.register(_servers[0].close)
    return _servers[0]


def use(patch: pytest.MonkeyPatch, sidecars: bool = True) -> None:
    """Fork the ranks of every attempt that is started until the patch is undone; their sidecars, too, if asked."""
    guarded = processes.guarded

    def forked(process: Process) -> list[str]:
        fresh = process.sidecar and not sidecars
        return guarded(process if fresh else replace(process, tokens=servers().tokens(process)))

    patch.setattr(processes, "guarded", forked)
