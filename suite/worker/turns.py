"""The turns of several measurements on a host: all of them are running, and only one of them works at a time.

The machine's drift then hits all of them alike, within a second instead of minutes. A rank that waits for its turn
sleeps in a read of a pipe of its own; stagebench.suite.processes.attempt has the other end.
"""

import os
from typing import Any, Callable

from stagebench.suite.worker.messages import Waiting

PIPE = "turns-%d"  # in the attempt's folder, by rank; it exists if turns are taken


class Turns:
    """The turns of one rank; without a pipe it is always this rank's turn."""

    def __init__(self, folder: str, rank: int, send: Callable[[Any], None]) -> None:
        path = f"{folder}/{PIPE % rank}"
        self._send = send
        # For writing, too: a pipe without a writer would end.
        self._pipe = os.open(path, os.O_RDWR) if os.path.exists(path) else None

    @property
    def taken(self) -> bool:
        """True if other measurements work between this rank's turns."""
        return self._pipe is not None

    def wait(self, more: bool) -> None:
        """Sleep until this rank's next turn; `more`: it will ask again before its pass is over."""
        if self._pipe is not None:
            self._send(Waiting(more))
            os.read(self._pipe, 1)
