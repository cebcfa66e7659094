"""`dp`: DataParallel, one process that drives several GPUs."""

import torch
from torch.nn.parallel import DataParallel

from adapters.pytorch.machine import own_gpus
from adapters.pytorch.replica import ReplicaTrainer


class DP(ReplicaTrainer):
    """Scatters the batch and the weights over this process's GPUs in every step."""

    grouped = False

    def synchronize(self) -> None:
        """All of them: a step ends on the first, a measurement of their peaks on each."""
        for number in own_gpus(self.setup):
            torch.cuda.synchronize(number)

    def _wrap(self) -> None:
        # Its staged forward scatters as its native one does: there is no other.
        self._staged_net = self._native_net = DataParallel(self._staged_net, device_ids=list(range(self.setup.devices)))
