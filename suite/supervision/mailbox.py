"""Reads what the ranks write while they write it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suite.supervision.growing import Growing


class Mailbox:
    """The rank-N.jsonl files of a folder, read as they grow."""

    def __init__(self, folder: Path, ranks: int) -> None:
        """The files need not exist yet."""
        self.messages: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(ranks)}
        self.last: dict[int, dict[str, Any]] = {}
        self._files = {rank: Growing(folder / f"rank-{rank}.jsonl") for rank in range(ranks)}

    @property
    def unreadable(self) -> int:
        """Whole lines that are not messages; the evidence tells how many."""
        return sum(file.unreadable for file in self._files.values())

    def new(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The messages that came since the last call; a half-written line waits for its end.

        All are given, but "progress" is not kept: there may be thousands.
        """
        for rank, file in self._files.items():
            for message in file.new():
                self.last[rank] = message
                if message["type"] != "progress":
                    self.messages[rank].append(message)
                yield rank, message

    def close(self) -> None:
        """Close the files; `new` opens them again where they stood."""
        for file in self._files.values():
            file.close()
