"""What the host under a process is, read from the system; it may hide any of it."""

import platform
from typing import Optional

from suite.worker.messages import Machine

CPUS, MEMORY = "/proc/cpuinfo", "/proc/meminfo"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def machine() -> Machine:
    memory = _field(MEMORY, "MemTotal")
    return Machine(
        cpu=_field(CPUS, "model name") or platform.processor() or None,
        memory_bytes=int(memory.split()[0]) * 1024 if memory else None,
        kernel=platform.release() or None,
        governor=_text(GOVERNOR).strip() or None,
    )


def _field(path: str, name: str) -> Optional[str]:
    """The first value of that name in a file of lines "name: value"."""
    for line in _text(path).splitlines():
        if line.partition(":")[0].strip() == name:
            return line.partition(":")[2].strip()
    return None


def _text(path: str) -> str:
    try:
        with open(path) as stream:
            return stream.read()
    except OSError:
        return ""
