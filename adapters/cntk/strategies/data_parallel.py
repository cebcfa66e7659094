"""Every rank a replica; 32-bit gradients are summed over MPI in every step."""

from typing import Any

import numpy as np

from adapters.cntk.distributed import DistributedTrainer
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it


class DataParallel(DistributedTrainer):
    """The 32-bit learner in `step`; its sum as a stage of its own."""

    def distributed_learner(self, local: Any) -> Any:
        self._zeros: Any = None
        return self.data_parallel_learner(local, bits=32)

    def backward(self) -> None:
        """Gradients that have not been summed yet."""
        super().backward()
        self._summed = False

    def communicate(self) -> None:
        """Sum over the ranks, as the learner does."""
        if not self._summed:
            self.group.sum_in_place([self._gradients[parameter] for parameter in self._net.parameters])
            self._summed = True
            self._samples *= self.setup.world
            return
        # Asked again, the sums stay as they are and zeros of their sizes travel.
        if self._zeros is None:
            self._zeros = [C.NDArrayView.from_data(np.zeros(each.shape, self._dtype)) for each in self._net.parameters]
        self.group.sum_in_place(self._zeros)
