"""What became of an engine's logins on other hosts, as `cluster/lifeline.py` reports it, a line each."""

import json
from pathlib import Path
from typing import NamedTuple

from suite.contracts.launcher import LOGINS
from suite.supervision.line_reader import LineReader
from suite.worker.typed_json import from_json


class Login(NamedTuple):
    """One that has ended."""

    host: str
    code: int  # as the program's that logged in; -N for signal N
    time_s: float  # seconds since the epoch


def lost(folder: Path) -> list[Login]:
    """The logins that ended badly, in that order."""
    reader: LineReader[Login] = LineReader(folder / LOGINS, lambda line: from_json(Login, json.loads(line), LOGINS))
    ended = list(reader.new())
    reader.close()
    return [login for login in ended if login.code != 0]
