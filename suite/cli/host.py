"""What this machine offers and how busy it is: what a person should know before measuring."""

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from suite.processes import oom
from suite.processes.this_machine import this_machine
from suite.results.this_host import load


def facts(folder: Path, root: Path = oom.ROOT) -> dict[str, Any]:
    """Cores, memory, load, clock governor, free space in `folder`, GPUs; None where it cannot be read.

    `root`: where the kernel's files are, of control groups for memory.
    """
    import psutil

    memory, here = psutil.virtual_memory(), this_machine()
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "cores_physical": psutil.cpu_count(logical=False),
        "cpu_quota": here.cpu_quota,
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "oom_ends_all": oom.ends_all(root),
        "load": load(),
        "clock_governor": here.governor,
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "gpus": here.gpus,
    }


def warnings(found: dict[str, Any]) -> list[str]:
    """What would disturb a measurement now, each with what to do."""
    problems = []
    if found["load"][0] > 0.3 * found["cores"]:
        problems.append(f"the load is {found['load'][0]} on {found['cores']} cores: wait until it is idle")
    quota = found["cpu_quota"]
    if quota is not None and quota < found["cores"]:
        problems.append(
            f"a control group allows the time of {quota:g} of {found['cores']} cores and stops whoever has used it up: "
            "raise its limit (as a container, its limit of processors), or measure with fewer threads"
        )
    if found["oom_ends_all"]:
        problems.append(
            "memory.oom.group is 1 in a control group: where memory runs out, the kernel ends stagebench together with "
            "what it measures; give cases a `memory_limit`, or write 0 there (as a container, in its kubelet's "
            "configuration: `singleProcessOOMKill: true`)"
        )
    if found["clock_governor"] not in (None, "performance"):
        problems.append(f"the clock governor is {found['clock_governor']!r}: `cpupower frequency-set -g performance`")
    if found["disk_free_bytes"] < 2e9:
        problems.append(f"only {found['disk_free_bytes'] / 1e9:.1f} GB of disk are free here; free some space")
    return problems
