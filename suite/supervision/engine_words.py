"""What an engine says for itself, in the attempt's engine.jsonl: one message a line, as the ranks write theirs.

Types:

    begun    the ranks' turn has come, and the limits of the case count (suite.contracts.launcher.Process.queues)
    failed   `kind` (an outcome) and `message` (a whole sentence) say why it ended badly; `certain` is true
             when that explains whatever the ranks said, as when their job was cancelled from outside
"""

from pathlib import Path
from typing import Any

from suite.supervision.growing import Growing

FILE = "engine.jsonl"


class EngineWords:
    """The messages of the engine; most engines have none."""

    def __init__(self, folder: Path) -> None:
        """The file need not exist yet."""
        self.messages: list[dict[str, Any]] = []
        self._file = Growing(folder / FILE)

    def new(self) -> list[dict[str, Any]]:
        """The messages that came since the last call."""
        found = list(self._file.new())
        self.messages += found
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()
