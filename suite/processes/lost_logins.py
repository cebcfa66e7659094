"""What became of an engine's logins on other hosts, as `suite.worker.guard` reports it, a line each."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from suite.contracts.launcher import LOGINS
from suite.processes.line_reader import LineReader


@dataclass(frozen=True)
class Login:
    """One that has ended."""

    host: str
    code: int  # as the program's that logged in; -N for signal N
    time_s: float  # seconds since the epoch


DECODE = partial(TypeAdapter(Login).validate_json, strict=True)


def lost(folder: Path) -> list[Login]:
    """The logins that ended badly, in that order."""
    reader = LineReader(folder / LOGINS, DECODE)
    ended = list(reader.new())
    reader.close()
    return [login for login in ended if login.code != 0]
