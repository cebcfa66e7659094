"""What a host is: read once per run, kept with the results. Everything is optional: a machine may hide any of it."""

import os
import platform
import socket
from dataclasses import dataclass

from suite.worker.machine import machine


@dataclass(frozen=True)
class Fingerprint:
    """A host; a reading that fails is None."""

    host: str  # its name
    cpu: str | None
    cores: int  # that this process may use
    cores_installed: int | None
    governor: str | None
    memory_bytes: int | None
    kernel: str | None
    os: str | None
    gpus: tuple[str, ...]  # with their UUIDs
    gpu_driver: str | None
    python: str


def fingerprint() -> Fingerprint:
    here = machine()
    return Fingerprint(
        host=socket.gethostname(),
        cpu=here.cpu,
        cores=len(os.sched_getaffinity(0)),
        cores_installed=os.cpu_count(),
        governor=here.governor,
        memory_bytes=here.memory_bytes,
        kernel=here.kernel,
        os=here.os,
        gpus=tuple(here.gpus),
        gpu_driver=here.gpu_driver,
        python=platform.python_version(),
    )


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
