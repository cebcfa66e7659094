"""What CNTK's trainers of several ranks share: the MPI group, and learners that exchange within their update."""

from typing import Any, Dict

import numpy as np

from adapters.cntk.base import CNTKTrainer
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.group import MPIGroup
from suite.worker.contract import Joined


class DistributedTrainer(CNTKTrainer):
    """A rank of CNTK's MPI group."""

    def start(self) -> Joined:
        versions = super().start().versions
        self.group = MPIGroup()
        return Joined(self.group.rank, self.group.world, self.group.transport, versions)

    def data_parallel_learner(self, local: Any, bits: int) -> Any:
        """CNTK's learner that sums gradients of so many bits around a local one."""
        return C.distributed.data_parallel_distributed_learner(
            local, distributed_after=0, num_quantization_bits=bits, use_async_buffered_parameter_update=False
        )


class ExchangeInUpdate(DistributedTrainer):
    """A strategy whose exchange is its learner's own business: the stage `update` holds it, too."""

    def update(self) -> None:
        C.cntk_py.DistributedLearner._update(self._learner, self._gradients, self._information())
        self._forget()

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), exchange="inside the learner's update, the staged pass's too")

    def _information(self) -> Any:
        about = C.cntk_py.MinibatchInfo()
        about.at_end_of_data = about.at_end_of_sweep = False
        about.number_of_samples = self._samples
        about.training_loss_value = C.NDArrayView.from_data(np.array(self._last_loss * self._samples, self._dtype))
        about.eval_criterion_value = C.NDArrayView.from_data(np.array(0, self._dtype))
        return about
