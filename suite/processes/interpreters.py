"""Finds each adapter's own interpreter and examines it.

Order: an explicit setting (`--python pytorch=/path`, or STAGEBENCH_PYTHON_PYTORCH), a clone's tox environment of the
adapter's name, the one that `stagebench env make` made, the running interpreter. An explicit setting that does not work
is an error: what a person asked for is never silently replaced.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.files import expanded
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes import query
from stagebench.suite.worker.typed_json import from_json

TOX_DIR = "STAGEBENCH_TOX_DIR"  # where tox keeps its environments, when not in ./.tox or the checkout's
CHECKOUT = Path(__file__).resolve().parents[2]
MAKE = "stagebench env make"  # the command, and the origin of what it made
MADE = "stagebench.json"  # a file in every whole environment that `stagebench env make` made
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


class Needs(Protocol):
    """The attributes by which an interpreter is looked for: an Adapter's own, or a communication backend's."""

    @property
    def name(self) -> str:
        """The name in settings and messages."""

    @property
    def environment(self) -> str | None:
        """The environment's name, for tox and for `stagebench env make`."""

    @property
    def requires(self) -> tuple[str, ...]:
        """The modules that it must have."""

    @property
    def remedy(self) -> str:
        """The command that makes it."""

    def missing(self, interpreter: Path) -> str | None:
        """Return the rest of what this machine lacks."""


class MissingRequirement(Unavailable):
    """This machine lacks something that no interpreter brings; the message has the remedy."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that can run an adapter's worker."""

    path: Path
    origin: str  # in words: "tox environment pytorch", ...
    version: str  # "3.11.7"
    packages: dict[str, str] = field(default_factory=dict)  # the required modules and NumPy: version, "" when unknown


@dataclass(frozen=True)
class Candidate:
    """A place where an adapter's interpreter may be."""

    path: Path
    origin: str
    explicit: bool = False


class Probe(NamedTuple):
    """The answer of an interpreter about itself."""

    version: str
    packages: dict[str, str]
    missing: tuple[str, ...]


def find(adapter: Needs, settings: Mapping[str, str] | None = None) -> Interpreter:
    """Return the first candidate that has all the adapter requires.

    `settings` maps adapter names to interpreters, as given with `--python`. Unavailable names every place tried, what
    was wrong there, and the remedy; MissingRequirement: the interpreter exists and something else is missing;
    RequestError: a place was asked for and does not work.
    """
    tried = []
    for candidate in candidates(adapter, settings or {}):
        answer = _checked(adapter, candidate)
        if isinstance(answer, Probe):
            missing = ask(cast(Adapter, adapter), "missing", candidate.path)
            if missing is not None:
                raise MissingRequirement(f"{adapter.name}: {missing}")
            return Interpreter(candidate.path, candidate.origin, answer.version, answer.packages)
        if candidate.explicit:
            raise RequestError(
                f"{adapter.name}: {candidate.origin} is {candidate.path}, which {answer}; "
                "name another one, or leave it out to have one looked for"
            )
        tried.append(f"{candidate.origin} ({candidate.path}) {answer}")
    where = "; ".join(tried) or "there was nowhere to look"
    where += not_handed_on(adapter.requires) + on_path(adapter.requires[:1])
    needed = ("NumPy", *(name for name in adapter.requires if name != "numpy"))
    raise Unavailable(f"{adapter.name}: no interpreter has {' and '.join(needed)}: {where}. {remedy(adapter)}")


def not_handed_on(names: Iterable[str]) -> str:
    """Return a note on a folder of PYTHONPATH or PYTHONUSERBASE that has one of these modules; "" if none has."""
    base = os.environ.get("PYTHONUSERBASE")
    folders = [("PYTHONPATH", folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    folders += [("PYTHONUSERBASE", str(site)) for site in Path(base).glob("lib/python*/site-packages")] if base else []
    for name, (variable, folder) in product(names, folders):
        if any(Path(folder).glob(f"{name}*")):
            return f"; {variable} has {name} in {folder}, and is not handed on: it belongs to another Python"
    return ""


def on_path(names: Iterable[str]) -> str:
    """Return a note on a Python of PATH, such as an environment module's, that has one of these modules; else ""."""
    for name, folder in product(names, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
        python = Path(folder, "python3")
        if python.exists() and any(Path(folder).parent.glob(f"lib/python*/*-packages/{name}")):
            return f"; PATH has {python} with {name}, which is taken only if it is named"
    return ""


def survey(adapter: Needs) -> list[tuple[Candidate, str | None]]:
    """Return every candidate in order, each with what is wrong with it (None: nothing); raises nothing."""
    answers = [(candidate, _checked(adapter, candidate)) for candidate in candidates(adapter, {})]
    return [(candidate, None if isinstance(answer, Probe) else answer) for candidate, answer in answers]


def candidates(adapter: Needs, settings: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the places to look in, best first; an explicit setting is the only one."""
    variable = f"STAGEBENCH_PYTHON_{adapter.name.upper().replace('-', '_')}"
    explicit = ((settings.get(adapter.name), f"--python {adapter.name}"), (os.environ.get(variable), variable))
    for value, origin in explicit:
        if value:
            yield Candidate(Path(os.path.abspath(os.path.expanduser(value))), origin, explicit=True)
            return
    if adapter.environment is not None:
        # Not resolved: a virtual environment is known by the path of its python, a symbolic link.
        for folder in tox_folders():
            path = folder / adapter.environment / "bin" / "python"
            if path.exists():
                yield Candidate(path, f"tox environment {adapter.environment}")
        made = made_folder() / adapter.environment
        if (made / MADE).exists():
            yield Candidate(made / "bin" / "python", f"{MAKE} {adapter.environment}")
    yield Candidate(Path(sys.executable), "the running interpreter")


def tox_folders() -> list[Path]:
    """Return the folders that may hold tox environments, each once."""
    named = os.environ.get(TOX_DIR)
    folders = [expanded(named)] if named else [Path.cwd() / ".tox", CHECKOUT / ".tox"]
    return list(dict.fromkeys(folder.absolute() for folder in folders))


def made_folder() -> Path:
    """Return the folder of the environments that `stagebench env make` makes; it need not exist."""
    return expanded(os.environ.get("XDG_DATA_HOME") or "~/.local/share").absolute() / "stagebench" / "envs"


def command_of(adapter: Needs) -> str | None:
    """Return the command that makes an adapter's environment, or makes anew one that is there and lacks something."""
    there = adapter.environment and (made_folder() / adapter.environment / MADE).exists()
    return adapter.remedy.replace(MAKE, f"{MAKE} --again", 1) if there else adapter.remedy


def remedy(adapter: Needs) -> str:
    """Return what a person can do about a missing interpreter."""
    command, _, comment = (command_of(adapter) or "").partition("  # ")
    added = f" ({comment})" if comment else ""
    made = f"Make its environment with `{command}`{added}, or name" if command else "Name"
    return f"{made} one with --python {adapter.name}=/path/to/python"


def _checked(adapter: Needs, candidate: Candidate) -> Probe | str:
    """Return a candidate's answer, or what is wrong with it: a sentence's end."""
    if not os.access(candidate.path, os.X_OK):
        return "is not an executable file"
    answer = examine(candidate.path, tuple(dict.fromkeys(("numpy", *adapter.requires))))
    return f"has no {' and no '.join(answer.missing)}" if isinstance(answer, Probe) and answer.missing else answer


@cache
def examine(path: Path, modules: tuple[str, ...]) -> Probe | str:
    """Return the interpreter's answer about these modules, or why there is none: a sentence's end.

    Answers are kept for the process's life.
    """
    try:
        done = query.ask([str(path), "-c", LOOK, *modules], SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not answer within {SECONDS:g} s"
    except OSError as error:
        return f"cannot be started: {error.strerror or error}"
    last = query.last_words(done)
    if done.returncode != 0:
        return f"ended with exit code {done.returncode}: {last}"
    try:
        # A site's start-up files may print before us.
        answer: Probe = from_json(Probe, json.loads(done.stdout.strip().splitlines()[-1]), "the answer")
        return answer
    except (ValueError, IndexError):
        return f"is not a Python interpreter: {last}"
