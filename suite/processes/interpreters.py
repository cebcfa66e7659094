"""Finds each adapter's own interpreter and looks inside it.

Order: an explicit setting (`--python pytorch=/path`, or STAGEBENCH_PYTHON_PYTORCH), the tox
environment of the adapter's name, the running interpreter. An explicit setting that does
not work is an error: what a person asked for is never silently replaced.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from suite.errors import RequestError, Unavailable
from suite.files import expanded
from suite.processes.probe import Probe, examine

TOX_DIR = "STAGEBENCH_TOX_DIR"  # where tox keeps its environments, when not in ./.tox or the checkout's
CHECKOUT = Path(__file__).resolve().parents[2]


class Needs(Protocol):
    """What an interpreter is looked for by: an Adapter's own attributes, or a communication backend's."""

    @property
    def name(self) -> str:
        """In settings and messages."""

    @property
    def environment(self) -> str | None:
        """The tox environment."""

    @property
    def requires(self) -> tuple[str, ...]:
        """Modules that it must have."""

    @property
    def remedy(self) -> str:
        """The command that makes it."""

    def missing(self, interpreter: Path) -> str | None:
        """What else this machine lacks."""


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


def find(adapter: Needs, settings: Mapping[str, str] | None = None) -> Interpreter:
    """The first candidate that has all the adapter requires.

    `settings` maps adapter names to interpreters, as given with `--python`. Raises
    Unavailable with every place tried, what was wrong there, and the remedy; MissingRequirement when
    the interpreter is there and something else is not; RequestError when a place was asked
    for and does not work.
    """
    tried = []
    for candidate in candidates(adapter, settings or {}):
        found = _checked(adapter, candidate)
        if isinstance(found, Probe):
            missing = adapter.missing(candidate.path)
            if missing is not None:
                raise MissingRequirement(f"{adapter.name}: {missing}")
            return Interpreter(candidate.path, candidate.origin, found.version, found.packages)
        if candidate.explicit:
            raise RequestError(
                f"{adapter.name}: {candidate.origin} is {candidate.path}, which {found}; "
                "name another one, or leave it out to have one looked for"
            )
        tried.append(f"{candidate.origin} ({candidate.path}) {found}")
    where = "; ".join(tried) or "there was nowhere to look"
    raise Unavailable(f"{adapter.name}: no interpreter has {_wanted(adapter)}: {where}. {remedy(adapter)}")


def survey(adapter: Needs, settings: Mapping[str, str] | None = None) -> list[tuple[Candidate, str | None]]:
    """Every candidate in order, each with what is wrong with it (None: nothing); raises nothing."""
    looked_at = ((each, _checked(adapter, each)) for each in candidates(adapter, settings or {}))
    return [(each, None if isinstance(found, Probe) else found) for each, found in looked_at]


def candidates(adapter: Needs, settings: Mapping[str, str]) -> Iterator[Candidate]:
    """Where to look, best first; an explicit setting is the only place there is."""
    variable = "STAGEBENCH_PYTHON_" + adapter.name.upper().replace("-", "_")
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
    yield Candidate(Path(sys.executable), "the running interpreter")


def tox_folders() -> list[Path]:
    """Folders that may hold tox environments, each once."""
    named = os.environ.get(TOX_DIR)
    folders = [expanded(named)] if named else [Path.cwd() / ".tox", CHECKOUT / ".tox"]
    return list(dict.fromkeys(folder.absolute() for folder in folders))


def remedy(adapter: Needs) -> str:
    """What a person can do about a missing interpreter."""
    command, _, comment = (adapter.remedy or "").partition("  # ")
    beside = f" ({comment})" if comment else ""
    made = f"Make its environment with `{command}`{beside}, or name" if command else "Name"
    return f"{made} one with --python {adapter.name}=/path/to/python"


def _wanted(adapter: Needs) -> str:
    return " and ".join(("NumPy", *adapter.requires))


def _checked(adapter: Needs, candidate: Candidate) -> Probe | str:
    """What is there, or what is wrong with it: a sentence's end."""
    if not os.access(candidate.path, os.X_OK):
        return "is not an executable file"
    found = examine(candidate.path, tuple(dict.fromkeys(("numpy", *adapter.requires))))
    return f"has no {' and no '.join(found.missing)}" if isinstance(found, Probe) and found.missing else found
