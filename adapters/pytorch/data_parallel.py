"""`dp`: one process drives several GPUs.

Oldest Python: 3.6.
"""

from torch.nn.parallel import DataParallel

from adapters.pytorch.whole import Whole


class DataParallelTrainer(Whole):
    """Scatters the batch and the weights over this process's GPUs in every step."""

    def _wrap(self) -> None:
        # Its staged forward scatters as its native one does: there is no other.
        self._alone = self._parallel = DataParallel(self._alone, device_ids=list(range(self.setup.devices)))
