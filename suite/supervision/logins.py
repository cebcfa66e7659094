"""What became of an engine's logins on other hosts, as `cluster/lifeline.py` tells it, a line each."""

import json
from dataclasses import dataclass
from pathlib import Path

from suite.contracts.launcher import LOGINS


@dataclass(frozen=True)
class Login:
    """One that has ended."""

    host: str
    code: int  # as the program's that logged in; -N for signal N
    time: float  # seconds since the epoch


def lost(folder: Path) -> list[Login]:
    """The logins that ended badly, in that order."""
    path = folder / LOGINS
    if not path.exists():
        return []
    # The last piece is a line that is still being written, or nothing.
    ended = [Login(**json.loads(line)) for line in path.read_text().split("\n")[:-1]]
    return [login for login in ended if login.code != 0]
