"""One process of an adapter on this machine, with the first of everything that it declares.

For what is no measurement: a trial start, the float64 oracle, packing a data set, comparing readers.
"""

from pathlib import Path
from typing import Any

from suite.contracts import knobs
from suite.contracts.adapter import Adapter
from suite.contracts.case import Configuration, Placement
from suite.contracts.optimisers import settings
from suite.environments.find import Interpreter
from suite.launching import bundle
from suite.launching.launch import Launch
from suite.plugins import launchers
from suite.supervision import Limits
from workloads.catalogue import Workload


def single(
    adapter: Adapter, workload: Workload, interpreter: Interpreter, folder: Path, limits: Limits, **values: Any
) -> Launch:
    """Its launch, with the bundle in `folder`; `values` change the configuration. A strategy of one rank goes first."""
    able = adapter.capabilities
    strategy = next((each for each in able.strategies if not each.distributed), able.strategies[0])
    launcher = strategy.launchers[0]
    configuration = Configuration(
        adapter.name,
        strategy.name,
        workload.name,
        Placement(device=able.devices[0], launcher=launcher),
        precision=able.precisions[0],
        tuning=able.tunings[0],
        knobs=knobs.values(able.knobs),
        **settings(able.optimisers[0], workload, 1),
    )
    written = bundle.write(adapter, folder / "bundle")
    return Launch(configuration.on(**values), adapter, workload, launchers()[launcher], interpreter, written, limits)
