"""Reads what the ranks write while they write it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


class Mailbox:
    """The rank-N.jsonl files of a folder, read as they grow."""

    def __init__(self, folder: Path, ranks: int) -> None:
        """The files need not exist yet."""
        self.messages: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(ranks)}
        self.last: dict[int, dict[str, Any]] = {}
        self.unreadable = 0  # whole lines that are not messages; the evidence tells how many
        self._paths = {rank: folder / f"rank-{rank}.jsonl" for rank in range(ranks)}
        self._streams: dict[int, BinaryIO] = {}
        self._halves = dict.fromkeys(range(ranks), b"")

    def new(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The messages that came since the last call; a half-written line waits for its end.

        All are given, but "progress" is not kept: there may be thousands.
        """
        for rank in self._paths:
            for message in self._read(rank):
                self.last[rank] = message
                if message["type"] != "progress":
                    self.messages[rank].append(message)
                yield rank, message

    def close(self) -> None:
        """Close the files."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _read(self, rank: int) -> Iterator[dict[str, Any]]:
        if rank not in self._streams:
            try:
                self._streams[rank] = self._paths[rank].open("rb")
            except FileNotFoundError:
                return
        *lines, self._halves[rank] = (self._halves[rank] + self._streams[rank].read()).split(b"\n")
        for line in lines:
            message = understood(line)
            if message is None:
                self.unreadable += 1
            else:
                yield message


def understood(line: bytes) -> dict[str, Any] | None:
    """The message on a line, or None when it is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None
