"""`zero1`: DistributedDataParallel with the optimiser's state in shares.

Oldest Python: 3.6.
"""

import warnings
from typing import Any, Dict, List

import torch

with warnings.catch_warnings():
    # Other optimisers of this package compile themselves with it when they are imported.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from torch.distributed.optim import ZeroRedundancyOptimizer

from adapters.pytorch.ddp import DDPTrainer
from adapters.pytorch.solvers import arguments


class ZeroTrainer(DDPTrainer):
    """Every rank updates its share of the parameters and sends it to the others, within the update."""

    def notes(self) -> Dict[str, Any]:
        """Who updates how much."""
        found = super().notes()
        found["optimiser"] = "ZeroRedundancyOptimizer over " + found["optimiser"]
        return found

    def _solver(self, parameters: List[torch.Tensor]) -> Any:
        kind, options = arguments(self.setup.optimiser, self._fused)
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, **options)
