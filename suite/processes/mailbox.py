"""Receives the messages of ranks while they are written."""

from collections.abc import Iterator
from pathlib import Path

from suite.processes.line_reader import LineReader
from suite.worker.messages import Message, Progress, Waiting, decode


class Mailbox:
    """The rank-N.jsonl files of a folder, read as they grow."""

    def __init__(self, folder: Path, ranks: int) -> None:
        """The files need not exist yet."""
        self.messages: dict[int, list[Message]] = {rank: [] for rank in range(ranks)}
        self.last: dict[int, Message] = {}
        self._files = {rank: LineReader(folder / f"rank-{rank}.jsonl", decode) for rank in range(ranks)}

    @property
    def unreadable(self) -> int:
        """Whole lines that are no messages."""
        return sum(file.unreadable for file in self._files.values())

    def new(self) -> Iterator[tuple[int, Message]]:
        """The messages that came since the last call; a half-written line waits for its end.

        All are given, but Progress and Waiting are not kept: there may be thousands.
        """
        for rank, file in self._files.items():
            for message in file.new():
                if not isinstance(message, Waiting):  # what it did is told, not that others had a turn
                    self.last[rank] = message
                if not isinstance(message, (Progress, Waiting)):
                    self.messages[rank].append(message)
                yield rank, message

    def close(self) -> None:
        """Close the files; `new` opens them again where they stood."""
        for file in self._files.values():
            file.close()
