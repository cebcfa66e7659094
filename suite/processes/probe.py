"""Runs an interpreter once and learns what it is and has; answers are kept for the process's life."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from suite.processes.query import ask
from suite.worker.typed_json import from_json

SECONDS = 30.0  # a cold network file system is slow; a hung interpreter must not hang us

# Runs on Python 3.6 too; importlib.metadata came with 3.8, and before that setuptools knew versions.
# find_spec looks without importing: importing a framework takes seconds.
LOOK = """
import importlib.util, json, platform, sys

def version_of(name):
    try:
        try:
            from importlib import metadata
        except ImportError:
            import pkg_resources
            return pkg_resources.get_distribution(name).version
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


class Probe(NamedTuple):
    """What an interpreter answered about itself."""

    version: str
    packages: dict[str, str]
    missing: tuple[str, ...]


@cache
def examine(path: Path, modules: tuple[str, ...]) -> Probe | str:
    """The answer of the interpreter at `path` about these modules; else why there is none: the end of a sentence."""
    try:
        done = ask([str(path), "-c", LOOK, *modules], SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not answer within {SECONDS:g} s"
    except OSError as error:
        return f"cannot be started: {error.strerror or error}"
    return _understood(done)


def _understood(done: subprocess.CompletedProcess[str]) -> Probe | str:
    last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]
    if done.returncode != 0:
        return f"ended with exit code {done.returncode}: {last}"
    try:
        # A site's start-up files may print before us.
        answer: Probe = from_json(Probe, json.loads(done.stdout.strip().splitlines()[-1]), "the answer")
        return answer
    except (ValueError, IndexError):
        return f"is not a Python interpreter: {last}"
