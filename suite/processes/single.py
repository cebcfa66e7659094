"""One process of an adapter on this machine, with the first of everything that it declares.

For what is no measurement: a trial start, the float64 oracle, packing a data set, comparing readers.
"""

from pathlib import Path
from typing import Any

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Configuration, Placement
from suite.contracts.launcher import usual
from suite.contracts.optimisers import settings
from suite.plugins import launchers
from suite.processes import bundle
from suite.processes.attempt import Limits
from suite.processes.interpreters import Interpreter
from suite.processes.launch import Launch
from workloads.catalogue import Workload


def plain(adapter: Adapter, workload: Workload, **values: Any) -> Configuration:
    """The first of everything that an adapter declares, on one rank; `values` change it."""
    able = adapter.capabilities
    strategy = next((each for each in able.strategies if not each.distributed), able.strategies[0])
    found = Configuration(
        adapter.name,
        strategy.name,
        workload.name,
        Placement(device=able.devices[0], launcher=usual(strategy, launchers())),
        precision=able.precisions[0],
        tuning=able.tunings[0],
        **settings(able.optimisers[0], workload, 1),
    )
    return found.on(**{**values, "knobs": knobs.values(able.knobs, values.get("knobs"))})


def single(
    adapter: Adapter, workload: Workload, interpreter: Interpreter, folder: Path, limits: Limits, **values: Any
) -> Launch:
    """The launch of a plain configuration, changed by `values`; its bundle goes to `folder`."""
    configuration = plain(adapter, workload, **values)
    launcher, written = launchers()[configuration.placement.launcher], bundle.write(adapter, folder / "bundle")
    return Launch(configuration, adapter, workload, launcher, interpreter, written, limits)
