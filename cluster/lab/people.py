"""Who runs in a host."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

from cluster.lab.tools import run, works
from suite.errors import RequestError

POLITE, FORCED = 3.0, 5.0  # seconds after SIGTERM, after SIGKILL


def processes(namespace: str) -> list[psutil.Process]:
    """The processes in a namespace of the network; none where there is no such namespace."""
    if not works("ip", "netns", "pids", namespace):
        return []
    found = []
    for pid in map(int, run("ip", "netns", "pids", namespace).split()):
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def end(namespace: str, patience: float = POLITE) -> None:
    """End them: politely, then at once; RequestError when this very process is one of them."""
    found = processes(namespace)
    if os.getpid() in [process.pid for process in found]:
        raise RequestError(f"this command runs in {namespace} itself; give it outside of the laboratory")
    _signal(found, signal.SIGTERM)
    _, staying = psutil.wait_procs(found, patience)
    _signal({*staying, *processes(namespace)}, signal.SIGKILL)
    psutil.wait_procs(staying, FORCED)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
