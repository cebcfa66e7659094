"""The border that fuzzed commands cannot cross: they start no program, connect to nobody, and write below one folder.

Python's own audit events see every attempt, whoever makes it (PEP 578). A hook stays for the life of its process, so it
acts only within `border`.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "socket.bind",
          "socket.connect"}  # fmt: skip
# Which arguments of an event are places that are written.
WRITES: dict[str, Callable[..., tuple[Any, ...]]] = {
    "open": lambda path, mode, flags: (path,) if flags & WRITING else (),
    "os.mkdir": lambda path, mode, folder: (path,) if folder == -1 else (),
    "os.remove": lambda path, folder: (path,) if folder == -1 else (),
    "os.rmdir": lambda path, folder: (path,) if folder == -1 else (),
    "os.rename": lambda source, target, *_: (source, target),
    "os.link": lambda source, target, *_: (target,),
    "os.symlink": lambda source, target, *_: (target,),
    "os.chmod": lambda path, *_: (path,),
    "os.truncate": lambda path, *_: (path,),
}
_writable: list[tuple[str, ...]] = []


class Crossed(BaseException):
    """A command was about to start something: its request has been accepted."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _writable:
        return
    if event in STARTS:
        raise Crossed(event)
    for place in WRITES[event](*arguments) if event in WRITES else ():
        if isinstance(place, str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(place))
            if path != os.devnull and not path.startswith(_writable[-1]):
                raise PermissionError(errno.EACCES, "beyond the fuzzer's border", path)


sys.addaudithook(_watch)


@contextmanager
def border(*folders: str | os.PathLike[str]) -> Iterator[None]:
    """Within it the process writes below these folders alone, and starts nothing: `Crossed`."""
    _writable.append(tuple(os.path.join(os.path.abspath(os.fspath(folder)), "") for folder in folders))
    try:
        yield
    finally:
        _writable.pop()
