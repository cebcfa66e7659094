"""The pipes through which ranks on this machine learn that it is their turn (suite.worker.turns)."""

import os
from contextlib import suppress
from pathlib import Path

from suite.worker.turns import PIPE


class Pipes:
    """One for each rank of an attempt; their names are gone as soon as the ranks have opened them."""

    def __init__(self, folder: Path, ranks: int) -> None:
        """OSError where the folder's file system has no pipes."""
        self._paths = [folder / (PIPE % rank) for rank in range(ranks)]
        self._open: list[int] = []
        for path in self._paths:
            os.mkfifo(path)
            self._open.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # never waits for a rank that is gone

    def opened(self) -> None:
        """All ranks have: whatever happens now, no pipe is left in the folder."""
        for path in self._paths:
            path.unlink(missing_ok=True)

    def give(self) -> None:
        """It is these ranks' turn."""
        for each in self._open:
            os.write(each, b".")

    def close(self) -> None:
        """No further turn is given."""
        with suppress(OSError):  # the folder may be gone
            self.opened()
        while self._open:
            os.close(self._open.pop())
