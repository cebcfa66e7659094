"""A file of messages, one JSON object a line, read while somebody writes it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

Message = TypeVar("Message")


class LineReader(Generic[Message]):
    """The file need not exist yet; a half-written line waits for its end."""

    def __init__(self, path: Path, decode: Callable[[bytes], Message]) -> None:
        """Nothing is opened yet. `decode` raises ValueError for what is no message."""
        self.unreadable = 0  # whole lines that are no messages
        self._path, self._decode, self._half, self._at = path, decode, b"", 0
        self._stream: BinaryIO | None = None

    def new(self) -> Iterator[Message]:
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
            try:
                message = self._decode(line)
            except (ValueError, OverflowError, RecursionError):  # a whole number may be too large for a float
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
