"""What of this machine can be made to fail for one run alone: its disk, its clock, its memory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

LAYER = Path(__file__).with_name("layer.c")
DISK = "4m"  # of a run's own disk
PAGE = 4096
# Where a control group with its own memory can be made, and the file with its limit (version 1 or 2).
GROUPS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))


# --- the disk and the clock -------------------------------------------------------


@cache
def has_compiler() -> bool:
    return shutil.which("cc") is not None


def layered(folder: Path, disk: Path, alone: bool) -> dict[str, str]:
    """Variables with which a program's disk and clock are as `folder`/bad says; `alone`: not those it starts."""
    library = folder / "layer.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, LAYER], check=True)
    names = {"LD_PRELOAD": str(library), "FAULT_FILE": str(folder / "bad"), "FAULT_FOLDER": str(disk)}
    return {**names, "FAULT_ALONE": "yes"} if alone else names


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of a few megabytes over a folder that is there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "stagebench-faults", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@cache
def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


def fill(folder: Path, pages: int) -> Path:
    """Leave so many pages free on the disk of a folder; the file that has the others."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(PAGE))
    os.truncate(ballast, max(0, ballast.stat().st_size - pages * PAGE))
    return ballast


# --- memory -------------------------------------------------------------------------


# The kernel compares processes by what they use, with the libraries that they share. Those are charged to whoever read
# them first: in a container to it, here to nobody. Without them a limit would be below what the controller uses alone,
# and the kernel would end it before a small rank, whatever else is said of them.
LIBRARIES, MEMORY = 32 << 20, "/dev/shm"


class Group:
    """A control group whose memory can be limited."""

    def __init__(self, folder: Path, limit: str) -> None:
        self._folder, self._limit = folder, folder / limit

    def entered_by(self, command: list[str]) -> list[str]:
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self._folder), *command]

    def limit(self, spare: int | None) -> None:
        """To what is used now and `spare` bytes more; None: without limit."""
        used = next(
            path for name in ("usage_in_bytes", "current") if (path := self._folder / f"memory.{name}").exists()
        )
        endless = "-1" if self._limit.name.endswith("bytes") else "max"
        self._limit.write_text(endless if spare is None else str(int(used.read_text()) + spare))

    def kills(self) -> int:
        """Of the kernel's, for want of memory."""
        counted = next(path for name in ("oom_control", "events") if (path := self._folder / f"memory.{name}").exists())
        pairs = dict(line.split() for line in counted.read_text().splitlines())
        return int(pairs["oom_kill"])


@contextmanager
def group(name: str) -> Iterator[Group | None]:
    """One of that name; None where none can be made."""
    for place, limit in GROUPS:
        folder = place / f"stagebench-faults-{name}"
        with suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                break
            folder.rmdir()
    else:
        yield None
        return
    found = Group(folder, limit)
    try:
        with tempfile.NamedTemporaryFile(dir=MEMORY) as libraries:
            subprocess.run(
                found.entered_by(["sh", "-c", f'head -c {LIBRARIES} /dev/zero >"$0"', libraries.name]), check=True
            )
            yield found
    finally:
        folder.rmdir()


@cache
def can_limit() -> bool:
    with group(f"probe-{os.getpid()}") as made:
        return made is not None
