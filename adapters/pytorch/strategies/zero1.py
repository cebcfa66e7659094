"""`zero1`: DistributedDataParallel with the optimiser's state in shares."""

import warnings
from typing import Any, List

from torch import Tensor

with warnings.catch_warnings():
    # Other optimisers of this package compile themselves with it when they are imported, for more than a second.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from torch.distributed.optim import ZeroRedundancyOptimizer

from stagebench.adapters.pytorch.optimisers import arguments, groups
from stagebench.adapters.pytorch.strategies.ddp import DDP
from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.trainer import Notes


class Zero1(DDP):
    """DDP whose ranks each update a share of the parameters and send it to the others, within the update."""

    def step_alone(self, batch: Batch) -> None:
        """Step without the optimiser's own exchange, too: a rank keeps its share of the new parameters to itself."""
        optimiser = self._optimiser
        send = optimiser._sync_params
        optimiser._sync_params = lambda: None
        try:
            super().step_alone(batch)
        finally:
            optimiser._sync_params = send

    def notes(self) -> Notes:
        found = super().notes()
        found["optimiser"] = f"ZeroRedundancyOptimizer over {found['optimiser']}"
        return found

    def _make_optimiser(self, parameters: List[Tensor]) -> Any:
        kind, options = arguments(self.setup.optimiser, self._fused)
        return ZeroRedundancyOptimizer(groups(parameters, self.setup.optimiser), optimizer_class=kind, **options)
