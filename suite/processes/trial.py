"""Starts a framework once, as far as its trainer's `start`: does it come up here, which versions, on which devices?

A module that is there may still die when it is imported, or find no device: only starting tells.
"""

from dataclasses import dataclass, field, replace

from suite.contracts.adapter import Adapter
from suite.errors import StagebenchError
from suite.files import scratch
from suite.plugins import workloads
from suite.processes.attempt import Attempt, Limits
from suite.processes.interpreters import Interpreter
from suite.processes.single import single
from suite.worker import job
from suite.worker.messages import Failed, Joined, of_type

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
        except StagebenchError as error:  # a mistake in a declaration is that adapter's own affair
            problems[kind] = str(error)
            continue
        joined = of_type(Joined, attempt.messages.get(0, []))
        if attempt.outcome == "ok" and joined:
            devices.append(kind)
            versions.update(joined[0].versions)
        else:
            problems[kind], broken = attempt.reason, broken or unloadable(attempt)
    return Look(tuple(devices), versions, problems, broken)


def unloadable(attempt: Attempt) -> bool:
    """Whether the framework could not be imported, or took its process along; not a fault of the adapter's own."""
    if attempt.outcome != "crash":
        return False
    failed = of_type(Failed, attempt.messages.get(0, []))
    return not failed or failed[0].message.partition(":")[0] in LOADING


def _attempt(adapter: Adapter, interpreter: Interpreter, kind: str) -> Attempt:
    workload, limits = next(iter(workloads().values())), Limits(SECONDS, SECONDS)
    with scratch() as folder:
        launch = single(adapter, workload, interpreter, folder, limits)
        placement = replace(launch.configuration.placement, device=kind)
        on_device = replace(launch, configuration=launch.configuration.on(placement=placement))
        return on_device.run(folder, job.Look())
