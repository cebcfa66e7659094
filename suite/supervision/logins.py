"""What became of an engine's logins on other hosts, as `cluster/lifeline.py` reports it, a line each."""

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from suite.contracts.launcher import LOGINS
from suite.worker.typed_json import from_json


class Login(NamedTuple):
    """One that has ended."""

    host: str
    code: int  # as the program's that logged in; -N for signal N
    time_s: float  # seconds since the epoch


def lost(folder: Path) -> list[Login]:
    """The logins that ended badly, in that order."""
    path = folder / LOGINS
    if not path.exists():
        return []
    ended = []
    # The last piece is a line that is still being written, or nothing.
    for line in path.read_bytes().split(b"\n")[:-1]:
        with suppress(ValueError):  # what is no login says nothing about one
            ended.append(from_json(Login, json.loads(line), LOGINS))
    return [login for login in ended if login.code != 0]
