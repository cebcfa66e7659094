"""`zero1`: DistributedDataParallel with the optimiser's state in shares.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List

import torch
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
