"""This machine, as a run folder keeps it."""

import os
import platform
import socket

from suite.files import file_name
from suite.processes.hosts import this_machine
from suite.results.records import Host


def this_host() -> Host:
    return Host(
        host=file_name(socket.gethostname()),
        machine=this_machine(),
        cores=len(os.sched_getaffinity(0)),
        cores_installed=os.cpu_count(),
        python=platform.python_version(),
    )


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]
