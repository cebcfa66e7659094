"""What the host under a process is, read from the system; it may hide any of it."""

import platform
import subprocess
from typing import List, Optional, Tuple

from suite.worker.messages import Machine

CPUS, MEMORY = "/proc/cpuinfo", "/proc/meminfo"
OS = "/etc/os-release"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def machine() -> Machine:
    memory = _field(MEMORY, "MemTotal")
    named = [line.partition("=")[2].strip('"') for line in _text(OS).splitlines() if line.startswith("PRETTY_NAME=")]
    found, driver = gpus()
    return Machine(
        cpu=_field(CPUS, "model name") or platform.processor() or None,
        memory_bytes=int(memory.split()[0]) * 1024 if memory else None,
        kernel=platform.release() or None,
        governor=_text(GOVERNOR).strip() or None,
        os=named[0] if named else None,
        gpus=found,
        gpu_driver=driver,
    )


def gpus() -> Tuple[List[str], Optional[str]]:
    """(NVIDIA devices as "GPU 0: MODEL (UUID: GPU-...)", the driver); nothing where nvidia-smi is missing or silent."""
    fields = "--query-gpu=index,name,uuid,driver_version"
    command = ["nvidia-smi", fields, "--format=csv,noheader"]
    try:
        listed = subprocess.check_output(command, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return [], None
    rows = [[field.strip() for field in line.split(",")] for line in listed.splitlines() if line.count(",") == 3]
    return ["GPU %s: %s (UUID: %s)" % tuple(row[:3]) for row in rows], rows[0][3] if rows else None


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
