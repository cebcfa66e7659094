"""The strategies of several ranks: learners that exchange within their update, over MPI.

F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs", Interspeech 2014; K. Chen, Q. Huo, "Scalable training of deep learning machines by
incremental block training with intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
"""

from typing import Any, Optional

import numpy as np

from stagebench.adapters.cntk.base import CNTKTrainer, DeviceBatch, Learner
from stagebench.adapters.cntk.comm import MPIGroup
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.contract import Joined, Setup
from stagebench.suite.worker.trainer import Notes


class DistributedTrainer(CNTKTrainer):
    """A rank of CNTK's MPI group."""

    several_learners = False  # CNTK sums samples and losses with the gradients of one

    def start(self) -> Joined:
        versions = super().start().versions
        self.group = MPIGroup()
        return Joined(self.group.rank, self.group.world, self.group.transport, versions)

    def data_parallel_learner(self, local: Learner, bits: int) -> Learner:
        """Return CNTK's learner that sums gradients of `bits` bits, around a local learner."""
        return C.distributed.data_parallel_distributed_learner(
            local, distributed_after=0, num_quantization_bits=bits, use_async_buffered_parameter_update=False
        )


class ExchangeInUpdate(DistributedTrainer):
    """A strategy whose learner exchanges inside its update: the stage `update` includes the exchange."""

    def update(self) -> None:
        about = C.cntk_py.MinibatchInfo()
        about.at_end_of_data = about.at_end_of_sweep = False
        about.number_of_samples = self._samples
        about.training_loss_value = C.NDArrayView.from_data(np.array(self._last_loss * self._samples, self._dtype))
        about.eval_criterion_value = C.NDArrayView.from_data(np.array(0, self._dtype))
        C.cntk_py.DistributedLearner._update(self._learners[0], self._gradients, about)
        self._forget()

    def notes(self) -> Notes:
        return dict(super().notes(), exchange="inside the learner's update, the staged pass's too")


class DataParallel(DistributedTrainer):
    """`step` uses the 32-bit learner; `communicate` is its sum alone."""

    def distributed_learner(self, local: Learner) -> Learner:
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


class OneBitSGD(ExchangeInUpdate):
    """CNTK's data-parallel learner with one bit."""

    def distributed_learner(self, local: Learner) -> Learner:
        """Return the learner, which keeps the quantisation's error."""
        return self.data_parallel_learner(local, bits=1)

    def gradient_bytes(self) -> Optional[int]:
        return -(-self.parameter_count() // 8) if super().gradient_bytes() else None


class BlockMomentum(ExchangeInUpdate):
    """A block ends after `block_steps` steps; then the velocity is reset."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.share = 1.0 / setup.world
        self.period = int(setup.knobs["block_steps"])
        self._updates = 0

    def distributed_learner(self, local: Learner) -> Learner:
        """Return the learner with CNTK's own block momentum: 1 - 1/ranks per block."""
        setup, self._updates = self.setup, 0
        return C.distributed.block_momentum_distributed_learner(
            local,
            block_size=self.period * setup.batch * setup.world,
            block_momentum_as_time_constant=None,
            use_nestrov_momentum=True,
            reset_sgd_momentum_after_aggregation=True,
            block_learning_rate=1.0,
            distributed_after=0,
        )

    def step(self, batch: DeviceBatch) -> None:
        super().step(batch)
        self._forget_velocity()

    def update(self) -> None:
        super().update()
        self._forget_velocity()

    def _forget_velocity(self) -> None:
        """Reset a velocity that CNTK does not reset: the first update of a block keeps nothing of it."""
        self._updates += 1
        done = self._updates % self.period  # updates of the present block
        if done < 2:
            self.local.set_kept(float(done))

    def gradient_bytes(self) -> Optional[int]:
        """Return the mean of a step: the parameters are sent once per block."""
        whole = super().gradient_bytes()
        return None if whole is None else -(-whole // self.period)

    def notes(self) -> Notes:
        return dict(super().notes(), block_steps=self.period)
