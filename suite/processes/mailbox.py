"""Receives the messages of ranks and engines while they are written: files of JSON, one object a line."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from stagebench.suite.worker import messages
from stagebench.suite.worker.messages import Progress, Waiting

Message = TypeVar("Message")


class LineReader(Generic[Message]):
    """A file that another process writes; it need not exist yet, and a half-written line waits for its end."""

    def __init__(self, path: Path, decode: Callable[[bytes], Message]) -> None:
        """`decode` raises ValueError for a line that is no message; the file is opened by `new`."""
        self.unreadable = 0  # whole lines that are no messages
        self._path, self._decode, self._half, self._at = path, decode, b"", 0
        self._stream: BinaryIO | None = None

    def new(self) -> Iterator[Message]:
        """Yield the messages that came since the last call."""
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


class Mailbox:
    """The rank-N.jsonl files of a folder, read as they grow."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.messages: dict[int, list[messages.Message]] = {rank: [] for rank in range(ranks)}
        self.last: dict[int, messages.Message] = {}
        self._files = {rank: LineReader(folder / f"rank-{rank}.jsonl", messages.decode) for rank in range(ranks)}

    @property
    def unreadable(self) -> int:
        """The number of whole lines that are no messages."""
        return sum(file.unreadable for file in self._files.values())

    def new(self) -> Iterator[tuple[int, messages.Message]]:
        """Yield (rank, message) for the messages that came since the last call.

        Progress and Waiting are not kept: there may be thousands.
        """
        for rank, file in self._files.items():
            for message in file.new():
                if not isinstance(message, Waiting):  # a rank's last act is reported, not that others had a turn
                    self.last[rank] = message
                if not isinstance(message, (Progress, Waiting)):
                    self.messages[rank].append(message)
                yield rank, message

    def close(self) -> None:
        """Close the files; `new` opens them again where they stood."""
        for file in self._files.values():
            file.close()
