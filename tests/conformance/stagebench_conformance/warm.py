"""Ranks that are forked from a process which has imported the framework already, in place of importing it every time.

Most of a short test is `import tensorflow`. With `Conformance.warm` a server is started for each interpreter, bundle
and set of variables; it imports the trainer's module, with the strategies beside it, and forks a process for every
rank (`warm_server`). What the
group of an attempt starts and watches is a program that stands for the forked one (`warm_rank`). Ranks that an engine
starts (mpiexec), and whatever runs beside the ranks, start as ever.
"""

import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stagebench_conformance import warm_rank, warm_server
from suite.contracts.launcher import Process
from suite.environments.inherited import inherited
from suite.supervision import processes

# Each rank's, attempt's or test's: set in the forked process, and nothing that a framework reads when it is imported.
OWN = {"PYTEST_CURRENT_TEST", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"}
OWN |= {"STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK"}
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
        """What is to be started for a process: a stand-in for a rank's worker, any other program as it is."""
        if process.rank is None or process.sidecar or not is_worker(process.tokens):
            return tuple(process.tokens)
        server = self._server(process)
        stand_in = (sys.executable, "-I", "-S", warm_rank.__file__, str(server.place), str(server.process.pid))
        return (*stand_in, *process.tokens)

    def close(self) -> None:
        """End all."""
        while self.running:
            self.running.popitem()[1].close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _server(self, process: Process) -> Server:
        interpreter, bundle = process.tokens[0], Path(process.tokens[3])
        common = {**inherited(), **process.environ}
        common = {name: value for name, value in common.items() if name not in OWN}
        about = json.loads((bundle / "bundle.json").read_text())
        key = hashlib.sha256(json.dumps([interpreter, about["digest"], sorted(common.items())]).encode()).hexdigest()
        if key not in self.running:
            while len(self.running) >= MOST:
                self.running.popitem(last=False)[1].close()
            self.running[key] = self._started(interpreter, bundle, about["trainer"], common, key[:12])
        self.running.move_to_end(key)
        return self.running[key]

    def _started(self, interpreter: str, bundle: Path, trainer: str, common: dict[str, str], name: str) -> Server:
        place, kept = self.folder / name, self.folder / f"{name}-bundle"
        place.unlink(missing_ok=True)
        shutil.copytree(bundle, kept, dirs_exist_ok=True)  # a test's own folder may be gone before its server is
        tokens = [interpreter, "-B", "-u", warm_server.__file__, str(kept), str(place), *modules(bundle, trainer)]
        with (self.folder / f"{name}.log").open("wb") as log:
            return Server(
                place,
                subprocess.Popen(
                    tokens, env=common, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                ),
            )


def modules(bundle: Path, trainer: str) -> Iterator[str]:
    """The trainer's, and those of the strategies beside it: its factory imports one when a rank is made."""
    module = trainer.partition(":")[0]
    yield module
    beside = f"{module.rpartition('.')[0]}.strategies".lstrip(".")
    for path in sorted((bundle / beside.replace(".", "/")).glob("[!_]*.py")):
        yield f"{beside}.{path.stem}"


def is_worker(tokens: tuple[str, ...]) -> bool:
    """Whether this starts a bundle's worker, as `suite.launching.bundle.command` does."""
    return len(tokens) == 5 and os.path.exists(os.path.join(tokens[3], "bundle.json"))


_servers: list[Servers] = []


def servers() -> Servers:
    """This process's, made when they are first asked for; its sockets want a short path."""
    if not _servers:
        _servers.append(Servers(Path(tempfile.mkdtemp(prefix="warm-"))))
        atexit.register(_servers[0].close)
    return _servers[0]


def use(patch: pytest.MonkeyPatch) -> None:
    """Fork the ranks of every attempt that is started until the patch is undone."""
    guarded = processes.guarded
    patch.setattr(processes, "guarded", lambda each: guarded(replace(each, tokens=servers().tokens(each))))
