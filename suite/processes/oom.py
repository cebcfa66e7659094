"""The proof that memory ran out: the kernel's count of its kills, or a library's own words.

A SIGKILL alone proves nothing: people, engines and sites send it, too.
"""

import socket
from collections.abc import Iterable
from pathlib import Path

from suite.contracts.engine_messages import OomKills
from suite.worker.guard import control_groups, lines_of

ROOT = Path("/")

# The messages of libraries below the frameworks, in any case of letters, and where they come from.
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
    """Return whether a message reports memory that ran out, in a library's words or in a framework's own `phrases`."""
    lower = text.lower()
    return any(phrase.lower() in lower for phrase in (*PHRASES, *phrases))


def ends_all(root: Path = ROOT) -> bool:
    """Return whether the kernel, when memory runs out, kills a whole control group that this process is in.

    It does in version 2 if `memory.oom.group` is 1, in the process's own group or in one around it. To a container its
    own group may look like the root.
    """
    top = root / "sys/fs/cgroup"
    for number, _, path in control_groups(f"{root}/"):
        group = top / path.lstrip("/")
        around = [group, *(parent for parent in group.parents if parent.is_relative_to(top))]
        if number == "0" and any("1" in lines_of(str(each / "memory.oom.group")) for each in around):
            return True
    return False


def by_host(ours: int, reported: Iterable[OomKills]) -> dict[str, int]:
    """Return the kills of each host: `ours` on this one, and those that other hosts reported.

    Several logins or ranks of a host read the same kernel's count: the highest is its own.
    """
    kills = {socket.gethostname(): ours}
    for report in reported:
        kills[report.host] = max(report.processes, kills.get(report.host, 0))
    return kills
