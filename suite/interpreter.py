"""Runs an interpreter once and learns what it is and has; answers are kept for the process's life."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SECONDS = 30.0  # a cold network file system is slow; a hung interpreter must not hang us

# Runs on Python 3.6 too; importlib.metadata came with 3.8, so older ones leave versions unknown.
# find_spec looks without importing: importing a framework takes seconds.
LOOK = """
import importlib.util, json, platform, sys

def version_of(name):
    try:
        from importlib import metadata
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return metadata.version(metadata.packages_distributions()[name][0])
    except Exception:
        return ""

packages, missing = {}, []
for name in sys.argv[1:]:
    try:
        found = importlib.util.find_spec(name) is not None
    except ImportError:
        found = False
    if found:
        packages[name] = version_of(name)
    else:
        missing.append(name)
print(json.dumps({"version": platform.python_version(), "packages": packages, "missing": missing}))
"""

# Variables that tell one process its rank; they are somebody else's when the controller has them.
FOREIGN_RANKS = ("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD")
FOREIGN_PREFIXES = ("PYTHON", "OMPI_COMM_WORLD_", "PMIX_")


@dataclass(frozen=True)
class Probe:
    """What an interpreter said about itself."""

    version: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    problem: str | None = None  # why it could not be asked: a sentence's end


def inherited() -> dict[str, str]:
    """This process's variables without those meant for it alone.

    PYTHONPATH, PYTHONHOME and their like belong to the controller's interpreter and break
    another one's; a rank number belongs to whatever started the controller.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN_RANKS and not name.startswith(FOREIGN_PREFIXES)
    }


@cache
def examine(path: Path, modules: tuple[str, ...]) -> Probe:
    """Run the interpreter at `path` and ask for its version and these modules."""
    try:
        done = subprocess.run(
            [str(path), "-c", LOOK, *modules],
            env=inherited(),
            cwd="/",  # -c puts the working directory on the path: nothing of ours may be found there
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(problem=f"did not answer within {SECONDS:.0f} s")
    except OSError as error:
        return Probe(problem=f"cannot be started: {error.strerror or error}")
    return _understood(done)


def _understood(done: subprocess.CompletedProcess[str]) -> Probe:
    last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
    if done.returncode != 0:
        return Probe(problem=f"ended with exit code {done.returncode}: {last}")
    try:
        # A site's start-up files may print before us.
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        return Probe(answer["version"], answer["packages"], tuple(answer["missing"]))
    except (ValueError, IndexError, KeyError, TypeError):
        return Probe(problem=f"is not a Python interpreter: {last}")
