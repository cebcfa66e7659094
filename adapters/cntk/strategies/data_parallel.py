"""Each rank is a replica; 32-bit gradients are summed over MPI in every step."""

from typing import Any

import numpy as np

from adapters.cntk.exchange import DistributedTrainer
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name


class DataParallel(DistributedTrainer):
    """`step` uses the 32-bit learner; `communicate` is its sum alone."""

    def distributed_learner(self, local: Any) -> Any:
        self._zeros: Any = None
        return self.data_parallel_learner(local, bits=32)

    def backward(self) -> None:
        """Compute gradients, which are not summed yet."""
        super().backward()
        self._summed = False

    def communicate(self) -> None:
        """Sum over the ranks, as the learner does."""
        if not self._summed:
            self.group.sum_in_place([self._gradients[parameter] for parameter in self._net.parameters])
            self._summed = True
            self._samples *= self.setup.world
            return
        # In a second call the sums stay, and zeros of the same sizes are sent.
        if self._zeros is None:
            self._zeros = [C.NDArrayView.from_data(np.zeros(each.shape, self._dtype)) for each in self._net.parameters]
        self.group.sum_in_place(self._zeros)
