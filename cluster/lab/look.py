"""What a person wants to know of a laboratory."""

from typing import Any

import psutil

from cluster.lab.links import wire
from cluster.lab.people import processes
from cluster.lab.state import State


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
