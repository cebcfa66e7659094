"""Files written whole or not at all, paths that a person names, and the cache."""

import errno
import fcntl
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stagebench.suite.errors import RequestError, StagebenchError, StoreError, Unavailable

VARIABLE = "STAGEBENCH_CACHE"  # names the folder of what can be made again: oracles, proofs and data sets
DOCS = Path(__file__).parents[1] / "docs"  # a clone's pages; a wheel has those that messages name
# The remedy if a run's results cannot be written.
ROOM = (
    "what was measured before is kept. Free some space or name another folder with -o, then run the same command again "
    "to resume"
)


def stands(path: Path) -> bool:
    """True if a file or folder of that name exists; False for an impossible name (too long)."""
    return os.path.exists(path)


def real(path: Path) -> Path:
    """Return a path without links and dots. Links in a circle stay: using the path raises the disk's error."""
    return Path(os.path.realpath(path))  # Path.resolve raises a RuntimeError until Python 3.12


def expanded(path: str | Path) -> Path:
    """Replace a leading `~` by the home folder; return the path unchanged if that folder is unknown."""
    return Path(os.path.expanduser(path))


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a folder for temporary files and remove it at the end; Unavailable if it cannot be made."""
    remedy = "free some space, or set TMPDIR to a folder that can be written"
    with disk("no temporary file can be made", remedy, Unavailable):
        made = tempfile.TemporaryDirectory(prefix="stagebench-")
    with made as folder:
        yield Path(folder)


def free(path: Path) -> float:
    """Return the free bytes of a folder's disk; infinity if unknown."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return math.inf


def probe(folder: Path) -> None:
    """Write a page to a folder's disk and delete it; OSError if the disk is full, before anything depends on it."""
    with tempfile.TemporaryFile(dir=folder) as page:
        page.write(b"x" * 4096)


def file_name(*words: str) -> str:
    """Make a file name of words from a file, safe against leaving the folder; "unnamed" if no character is left."""
    kept = "-".join(re.sub(r"[^A-Za-z0-9_.-]+", "_", word).lstrip(".") for word in words)
    return kept.lstrip("-.")[:200] or "unnamed"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a partial file, flush it to the disk, rename it to `path`, flush the folder."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with disk(f"cannot write {path}", ROOM):
        try:
            partial.unlink(missing_ok=True)
            with partial.open("xb") as stream:  # never through an existing link or pipe
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
    """Make renames in a folder survive a power failure; OSError if the disk refuses."""
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
    """Turn an OSError into an error of `kind`: the action that failed, why, and the remedy."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", remedy) from error


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn an OSError about a run folder into a RequestError, before anything starts."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"{path} cannot be a run folder: {error.strerror or error} ({error.filename or path}); "
            "name one that can be made and written with -o"
        ) from error


@contextmanager
def locked(path: Path, on_busy: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file, which stays; the kernel releases it when the process that held it ends.

    If another process holds it, `on_busy` receives its id, and raises, or returns to wait for it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_busy(os.pread(descriptor, 128, 0).decode(errors="replace").strip() or "unknown")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def cache_root() -> Path:
    """Return `$STAGEBENCH_CACHE`, else `$XDG_CACHE_HOME/stagebench`, else ~/.cache/stagebench; it need not exist.

    A user without a home that can be written, as in some containers, has a folder for temporary files.
    """
    explicit = os.environ.get(VARIABLE)
    if explicit:
        return expanded(explicit).absolute()
    folder = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "stagebench"
    nearest = next((above for above in (folder, *folder.parents) if above.exists()), folder)
    if folder.parts[0] == "~" or not os.access(nearest, os.W_OK):
        folder = Path(tempfile.gettempdir(), f"stagebench-{os.getuid()}")
        if folder.exists() and folder.stat().st_uid != os.getuid():
            raise RequestError(f"{folder} is another user's; set {VARIABLE} to a folder for the cache")
    return folder.absolute()


def cache_folder(name: str) -> Path:
    """Return a folder below the root, made if necessary; RequestError, with the variable to set, if it cannot be."""
    folder = cache_root() / name
    remedy = f"set {VARIABLE} to a folder that can be written"
    with disk(f"the cache folder {folder} cannot be made", remedy, RequestError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise RequestError(f"the cache folder {folder} cannot be written; {remedy}")
    return folder
