"""What proves that memory ran out: the kernel's count of its kills, or a library's own words.

A SIGKILL alone proves nothing: people, engines and sites send it, too.
"""

import socket
from collections.abc import Iterable
from pathlib import Path

from suite.contracts.engine_messages import OomKills

ROOT = Path("/")

# What libraries below the frameworks say, in any case of letters, and where it comes from.
# A framework's own phrases are its adapter's (suite.contracts.adapter.Adapter.out_of_memory).
PHRASES = {
    "MemoryError": "Python; a reader's process passes it on as text",
    "[Errno 12]": "Python's OSError for ENOMEM, as of fork(2)",
    "std::bad_alloc": "C++, caught or on the way to abort(3)",
    "out of memory": "cudaGetErrorString, and with it NCCL; XLA; MPI_Error_string of MPI_ERR_NO_MEM",
    "OUT_OF_MEMORY": "CUDA_ERROR_OUT_OF_MEMORY of the driver",
    "STATUS_ALLOC_FAILED": "cuBLAS, cuDNN before 9, cuSOLVER, cuSPARSE: resources of their own on the device",
    "ALLOCATION_FAILED": "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, and of the host, of cuDNN 9",
    "MPI_ERR_NO_MEM": "MPI 4.1, section 9.4",
}


def ran_out(text: str, phrases: Iterable[str]) -> bool:
    """Whether a message says that memory ran out, in the words of a library or in a framework's own `phrases`."""
    lower = text.lower()
    return any(phrase.lower() in lower for phrase in (*PHRASES, *phrases))


def oom_kills(root: Path = ROOT) -> int:
    """Kills so far in this process's control group (version 2 or 1), else on the whole machine; 0 if nobody counts."""
    for source in (*_group_files(root), root / "proc/vmstat"):
        count = _counted(source)
        if count is not None:
            return count
    return 0


def ends_all(root: Path = ROOT) -> bool:
    """Whether, where memory runs out, the kernel ends the whole control group of this process, or one around it.

    So it is in version 2, where `memory.oom.group` is 1. A container may see its own group as the root.
    """
    top = root / "sys/fs/cgroup"
    for number, _, path in _groups(root):
        group = top / path.lstrip("/")
        around = [group, *(each for each in group.parents if each.is_relative_to(top))]
        if number == "0" and any(_text(each / "memory.oom.group").strip() == "1" for each in around):
            return True
    return False


def by_host(ours: int, reported: Iterable[OomKills]) -> dict[str, int]:
    """Kills of each host: `ours` on this one, and what others reported.

    Several logins or ranks of a host read the same kernel's count: the highest is its own.
    """
    found = {socket.gethostname(): ours}
    for each in reported:
        found[each.host] = max(each.processes, found.get(each.host, 0))
    return found


def _groups(root: Path) -> list[list[str]]:
    """Of this process: the hierarchy's number (0: version 2), its controllers, the group's path in it."""
    return [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines()]


def _group_files(root: Path) -> list[Path]:
    files = []
    for number, controllers, path in _groups(root):
        if number == "0":
            files.append(root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            files.append(root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.oom_control")
    return files


def _counted(source: Path) -> int | None:
    pairs = (line.split() for line in _text(source).splitlines())
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == "oom_kill"), None)


def _text(path: Path) -> str:
    """A file of the system's; nothing where it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""
