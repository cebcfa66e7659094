"""The processes and the traffic of a laboratory's hosts."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

from cluster.lab.links import run, wire, works
from cluster.lab.state import State
from suite.errors import RequestError

POLITE, FORCED = 3.0, 5.0  # seconds after SIGTERM, after SIGKILL


def processes(namespace: str) -> list[psutil.Process]:
    """Return the processes in a network namespace; none if it does not exist."""
    if not works("ip", "netns", "pids", namespace):
        return []
    running = []
    for pid in map(int, run("ip", "netns", "pids", namespace).split()):
        with suppress(psutil.NoSuchProcess):
            running.append(psutil.Process(pid))
    return running


def end(namespace: str, patience: float = POLITE) -> None:
    """End the processes in a namespace, by SIGTERM, then SIGKILL; RequestError if this very process is one of them."""
    running = processes(namespace)
    if os.getpid() in [process.pid for process in running]:
        raise RequestError(f"this command runs in {namespace} itself; give it outside of the laboratory")
    _signal(running, signal.SIGTERM)
    _, staying = psutil.wait_procs(running, patience)
    _signal({*staying, *processes(namespace)}, signal.SIGKILL)
    psutil.wait_procs(staying, FORCED)


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def look(state: State) -> list[dict[str, Any]]:
    return [_row(state, host) for host in state.layout.hosts]


def _row(state: State, host: str) -> dict[str, Any]:
    end = wire(host)
    return {
        "host": host,
        "address": state.layout.address(host),
        "link": "up" if end.up else "down",
        "rate": state.rate,
        "received": end.received,
        "sent": end.sent,
        "processes": [f"{process.pid} {_called(process)}" for process in processes(host)],
    }


def _called(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return "(gone)"
