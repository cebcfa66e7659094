"""An adapter by itself: one rank on this machine, with the first of everything that it declares."""

from pathlib import Path
from typing import Any

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Case, Placement
from suite.contracts.optimisers import settings
from suite.environments.find import Interpreter
from suite.launching import bundle
from suite.launching.launch import Ready
from suite.plugins import launchers
from workloads.catalogue import Workload


def alone(adapter: Adapter, workload: Workload, interpreter: Interpreter, folder: Path, **values: Any) -> Ready:
    """Ready to be started, its bundle in `folder`; `values` change the case. A strategy of one rank goes first."""
    able = adapter.capabilities
    strategy = next((each for each in able.strategies if not each.distributed), able.strategies[0])
    launcher = strategy.launchers[0]
    case = Case(
        adapter.name,
        strategy.name,
        workload.name,
        Placement(device=able.devices[0], launcher=launcher),
        precision=able.precisions[0],
        tuning=able.tunings[0],
        knobs=knobs.values(able.knobs),
        passes=(),
        **settings(able.optimisers[0], workload, 1),
    )
    written = bundle.write(adapter, folder / "bundle")
    return Ready(case.on(**values), adapter, workload, launchers()[launcher], interpreter, written)
