"""Files written whole or not at all, and folders that people name."""

import errno
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from suite.errors import RequestError, StagebenchError, StoreError, Unavailable

# What a person does where a run's results cannot be written.
ROOM = (
    "what was measured before is kept. Free some space or name another folder with -o, then run the same command again "
    "to resume"
)


def stands(path: Path) -> bool:
    """Whether there is a file or folder of that name; False, too, for a name that none can have (too long)."""
    return os.path.exists(path)


def real(path: Path) -> Path:
    """A path without links and dots. Links in a circle stay: whoever uses the path learns of them from the disk."""
    return Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError until Python 3.12


def expanded(path: str | Path) -> Path:
    """A path that a person names, with a home folder for its `~`; as it stands where nobody knows that folder."""
    return Path(os.path.expanduser(path))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for temporary files; Unavailable where none can be made."""
    remedy = "free some space, or set TMPDIR to a folder that can be written"
    with disk("no temporary file can be made", remedy, Unavailable):
        made = tempfile.TemporaryDirectory(prefix="stagebench-")
    with made as folder:
        yield Path(folder)


def free(path: Path) -> float:
    """Bytes that are free on a folder's disk; infinity where it does not say."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return math.inf


def probe(folder: Path) -> None:
    """Write a page to a folder's disk and forget it; OSError where there is no room, which is better met at once."""
    with tempfile.TemporaryFile(dir=folder) as page:
        page.write(b"x" * 4096)


def file_name(*words: str) -> str:
    """Words that were read from a file, as a name that cannot leave its folder; "unnamed" where nothing is left."""
    kept = "-".join(re.sub(r"[^A-Za-z0-9_.-]+", "_", word).lstrip(".") for word in words)
    return kept.lstrip("-.")[:200] or "unnamed"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write beside the file, flush it to the disk, rename it over the file, flush the folder."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with disk(f"cannot write {path}", ROOM):
        try:
            partial.unlink(missing_ok=True)
            with partial.open("xb") as stream:  # never through a link, nor into a pipe, that somebody put there
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
            flush_folder(path.parent)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


def flush_folder(path: Path) -> None:
    """Keep what was renamed in it, should the power fail; OSError when the disk refuses."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot flush folders
            raise
    finally:
        os.close(descriptor)


@contextmanager
def disk(what: str, remedy: str, kind: type[StagebenchError] = StoreError) -> Iterator[None]:
    """Turn what the disk refuses into an error of that kind: `what` cannot be done, why, and the remedy."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", remedy) from error


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn what the disk says of a place for a run folder into a RequestError; nothing was started yet."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"{path} cannot be a run folder: {error.strerror or error} ({error.filename or path}); "
            "name one that can be made and written with -o"
        ) from error
