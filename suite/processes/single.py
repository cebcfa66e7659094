"""A single process of an adapter on this machine, with the first of everything that it declares.

It measures nothing: it makes the float64 oracle, packs a data set, compares readers, or only starts the framework.
Only a start tells whether a framework works here: a module that is found may still die when it is imported, or find no
device.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Configuration, Placement, optimiser_settings
from stagebench.suite.contracts.launcher import usual
from stagebench.suite.errors import StagebenchError
from stagebench.suite.files import scratch
from stagebench.suite.plugins import launchers, workloads
from stagebench.suite.processes import bundle
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.interpreters import Interpreter
from stagebench.suite.processes.launch import Launch
from stagebench.suite.worker import job
from stagebench.suite.worker.messages import Failed, Joined, of_type
from stagebench.workloads.catalogue import Workload

LOADING = ("ImportError", "ModuleNotFoundError", "OSError")  # raised by a library that is damaged or missing
SECONDS = 60.0  # a cold import of a large framework takes ten


def plain(adapter: Adapter, workload: Workload, **values: Any) -> Configuration:
    """Return the first of everything that an adapter declares, on one rank; `values` change it."""
    able = adapter.capabilities
    strategy = next((strategy for strategy in able.strategies if not strategy.distributed), able.strategies[0])
    configuration = Configuration(
        adapter.name,
        strategy.name,
        workload.name,
        Placement(device=able.devices[0], launcher=usual(strategy, launchers())),
        precision=able.precisions[0],
        tuning=able.tunings[0],
        **optimiser_settings(able.optimisers[0], workload, 1),
    )
    return configuration.on(**{**values, "knobs": knobs.values(able.knobs, values.get("knobs"))})


def single(
    adapter: Adapter, workload: Workload, interpreter: Interpreter, folder: Path, limits: Limits, **values: Any
) -> Launch:
    """Return the launch of a plain configuration, changed by `values`; its bundle goes to `folder`."""
    configuration = plain(adapter, workload, **values)
    launcher, written = launchers()[configuration.placement.launcher], bundle.write(adapter, folder / "bundle")
    return Launch(configuration, adapter, workload, launcher, interpreter, written, limits)


@dataclass(frozen=True)
class Look:
    """The result of a trial start on every kind of device."""

    devices: tuple[str, ...] = ()  # kinds on which it started
    versions: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # device kind: why it did not start there
    broken: bool = False  # it died while it was loaded: what is installed there is at fault


def look(adapter: Adapter, interpreter: Interpreter, kinds: list[str]) -> Look:
    """Start the framework once on every kind of device, as far as its trainer's `start`."""
    devices, versions, problems, broken = [], {}, {}, False
    workload, limits = next(iter(workloads().values())), Limits(SECONDS, SECONDS)
    for kind in kinds:
        try:
            with scratch() as folder:
                launch = single(adapter, workload, interpreter, folder, limits)
                placement = replace(launch.configuration.placement, device=kind)
                on_device = replace(launch, configuration=launch.configuration.on(placement=placement))
                attempt = on_device.run(folder, job.Look())
        except StagebenchError as error:  # a mistake in a declaration is that adapter's own affair
            problems[kind] = str(error)
            continue
        joined = of_type(Joined, attempt.messages.get(0, []))
        if attempt.outcome == "ok" and joined:
            devices.append(kind)
            versions.update(joined[0].versions)
        else:
            problems[kind], failed = attempt.reason, of_type(Failed, attempt.messages.get(0, []))
            # It could not be imported, or ended its process; the adapter is then not at fault.
            at_loading = not failed or failed[0].message.partition(":")[0] in LOADING
            broken = broken or (attempt.outcome == "crash" and at_loading)
    return Look(tuple(devices), versions, problems, broken)
