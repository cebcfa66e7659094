"""The lock of a run folder, held by one session at a time: two would write the same records and disturb the times."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite.errors import RequestError
from suite.files import flush_folder, real, usable

_OURS: set[Path] = set()  # the folders that this process holds: its session may hold one that the command line holds
LOCK = ".lock"  # in the run folder, where it stays; the kernel releases it when the process that held it ends


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a run folder, which is made if necessary; a process may hold it repeatedly.

    RequestError if another process holds it (its id is in the message), or if the folder cannot be made or locked.
    """
    place = real(folder)
    if place in _OURS:
        yield
        return
    with usable(folder):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            flush_folder(place.parent)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        _take(descriptor, folder)
        _OURS.add(place)
        yield
    finally:
        _OURS.discard(place)
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 128, 0).decode(errors="replace").strip() or "unknown"
        raise RequestError(
            f"{folder} is in use by another session (process {holder}); wait for it, end it, "
            "or name another folder with -o"
        ) from None
    except OSError as error:  # some network file systems have no locks
        raise RequestError(
            f"{folder} cannot be locked: {error.strerror}; name one with -o on a file system that has locks"
        ) from error
    with usable(folder):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
