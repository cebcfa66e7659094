"""A file of messages, one JSON object a line, read while somebody writes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO


class Growing:
    """The file need not exist yet; a half-written line waits for its end."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self.unreadable = 0  # whole lines that are not messages
        self._path, self._half, self._at = path, b"", 0
        self._stream: BinaryIO | None = None

    def new(self) -> Iterator[dict[str, Any]]:
        """The messages that came since the last call."""
        if self._stream is None:
            try:
                self._stream = self._path.open("rb")
            except FileNotFoundError:
                return
            self._stream.seek(self._at)
        data = self._stream.read()
        self._at += len(data)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            message = understood(line)
            if message is None:
                self.unreadable += 1
            else:
                yield message

    def close(self) -> None:
        """Close the file; `new` opens it again where it stood.

        Over NFS only a file that has just been opened shows all that another host wrote.
        """
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def understood(line: bytes) -> dict[str, Any] | None:
    """The message on a line, or None when it is none."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None
