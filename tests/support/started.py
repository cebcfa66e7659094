"""Processes that a test has started, or that others left behind; the core's environment has psutil."""

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

CHECKOUT = Path(__file__).parents[2]
# Knobs of the tiny adapter, and how the reason of a crash begins.
DEATHS = pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"dies": 1, "signal": "SIGKILL"}, "rank 1 was ended by SIGKILL in native"),
        ({"raises": 1}, "rank 1: ValueError: the layer is upside down"),
    ],
    ids=["SIGKILL", "exception"],
)


def wait_until(true, seconds=120):
    """Wait for a condition, as long as a busy machine may take."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running_in(folder, status=None):
    """The processes whose working directory this is, but for the zombies; of this status, if one is given."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            now = process.status()
            if Path(process.cwd()) == folder and now != psutil.STATUS_ZOMBIE and status in (None, now):
                found.append(process)
    return found


def broke_in_mpi_init(attempt):
    """Whether Open MPI itself crashed in MPI_Init, as 5.0 does under srun now and then, before a rank had joined."""
    joined = any('"joined"' in path.read_text() for path in attempt.glob("rank-*.jsonl"))
    said = "".join(path.read_text(errors="replace") for path in attempt.glob("*.log"))
    return not joined and re.search(r"(?s)Segmentation fault.*mpi_init", said, re.IGNORECASE) is not None


def controller(process, ranks, folder):
    """The program of a controller, which runs a launcher's process for so many ranks and prints the outcome."""
    return f"""
from pathlib import Path
from stagebench.suite.contracts.launcher import Process
from stagebench.suite.processes.attempt import Limits, run
process = Process({process.tokens!r}, {process.environ!r})
print(run([process], {ranks}, Path({str(folder)!r}), Limits(600, 600), print).outcome)
"""


def controller_of(process, ranks, folder):
    """Such a controller in a process of its own."""
    program = controller(process, ranks, folder)
    return subprocess.Popen([sys.executable, "-c", program], cwd=CHECKOUT, stdout=subprocess.DEVNULL)
