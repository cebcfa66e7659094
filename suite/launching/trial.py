"""Starts a framework once, as far as its trainer's `start`: does it come up here, which versions, on which devices?

A module that is there may still die when it is imported, or find no device: only starting tells.
"""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Case, Placement
from suite.environments.find import Interpreter
from suite.errors import StagebenchError
from suite.launching import bundle
from suite.launching.launch import Ready
from suite.plugins import launchers, workloads
from suite.supervision import Attempt

LOADING = ("ImportError", "ModuleNotFoundError", "OSError")  # what a library that is damaged or missing raises
SECONDS = 60.0  # a cold import of a large framework takes ten


@dataclass(frozen=True)
class Look:
    """What became of it."""

    devices: tuple[str, ...] = ()  # kinds on which it started
    versions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # device kind: why it did not start there
    broken: bool = False  # it died while it was loaded: what is installed there is at fault


def look(adapter: Adapter, interpreter: Interpreter, kinds: list[str]) -> Look:
    """Start it by itself on every kind of device."""
    devices, versions, problems, broken = [], {}, {}, False
    for kind in kinds:
        try:
            attempt = _attempt(adapter, interpreter, kind)
        except StagebenchError as error:  # a slip in a declaration is that adapter's own affair
            problems[kind] = str(error)
            continue
        joined = [message for message in attempt.messages.get(0, []) if message["type"] == "joined"]
        if attempt.outcome == "ok" and joined:
            devices.append(kind)
            versions.update(joined[0]["versions"])
        else:
            problems[kind], broken = attempt.reason, broken or unloadable(attempt)
    return Look(tuple(devices), versions, problems, broken)


def unloadable(attempt: Attempt) -> bool:
    """Whether the framework could not be imported, or took its process along; not a fault of the adapter's own."""
    if attempt.outcome != "crash":
        return False
    failed = [message["message"] for message in attempt.messages.get(0, []) if message["type"] == "failed"]
    return not failed or failed[0].partition(":")[0] in LOADING


def _attempt(adapter: Adapter, interpreter: Interpreter, kind: str) -> Attempt:
    with tempfile.TemporaryDirectory() as scratch:
        ready = _ready(adapter, interpreter, kind, Path(scratch))
        return ready.attempt(Path(scratch), "look", lambda rank, message: None)


def _ready(adapter: Adapter, interpreter: Interpreter, kind: str, folder: Path) -> Ready:
    capabilities, workload = adapter.capabilities, next(iter(workloads().values()))
    alone = next((each for each in capabilities.strategies if not each.distributed), capabilities.strategies[0])
    case = Case(
        adapter.name,
        alone.name,
        workload.name,
        Placement(device=kind, launcher=alone.launchers[0]),
        precision=capabilities.precisions[0],
        tuning=capabilities.tunings[0],
        knobs=knobs.values(capabilities.knobs),
        passes=(),
        time_limit=SECONDS,
        silence_limit=SECONDS,
    )
    launcher = launchers()[alone.launchers[0]]
    return Ready(case, adapter, workload, launcher, interpreter, bundle.write(adapter, folder / "bundle"))
