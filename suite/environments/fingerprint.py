"""What a host is: read once per run, kept with the results. Everything is optional: a machine may hide any of it."""

import os
import platform
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Fingerprint:
    """A host; a reading that fails is None."""

    host: str  # its name
    cpu: str | None
    cores: int  # that this process may use
    cores_installed: int | None
    governor: str | None
    memory_bytes: int
    kernel: str
    os: str | None
    gpus: tuple[str, ...]
    python: str


def fingerprint() -> Fingerprint:
    """Of this host."""
    return Fingerprint(
        host=socket.gethostname(),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        cores_installed=os.cpu_count(),
        governor=governor(),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        os=_os_name(),
        gpus=tuple(gpus()),
        python=platform.python_version(),
    )


def governor() -> str | None:
    """The clock governor of the first core."""
    try:
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip() or None
    except OSError:
        return None


def gpus() -> list[str]:
    """Names of the NVIDIA devices that nvidia-smi lists; empty where it is missing or silent."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU")]


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
