"""Block momentum: each rank trains alone for a block of steps, then the models are joined.

K. Chen, Q. Huo, "Scalable training of deep learning machines by incremental block training with
intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
"""

from typing import Any, Dict, Optional

from adapters.cntk.exchange import ExchangeInUpdate
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from suite.worker.contract import Batch, Setup


class BlockMomentum(ExchangeInUpdate):
    """A block ends after `block_steps` steps; then the velocity is reset."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.share = 1.0 / setup.world
        self._updates = 0

    def distributed_learner(self, local: Any) -> Any:
        """Return the learner with CNTK's own block momentum: 1 - 1/ranks per block."""
        setup, self._updates = self.setup, 0
        return C.distributed.block_momentum_distributed_learner(
            local,
            block_size=setup.knobs["block_steps"] * setup.batch * setup.world,
            block_momentum_as_time_constant=None,
            use_nestrov_momentum=True,
            reset_sgd_momentum_after_aggregation=True,
            block_learning_rate=1.0,
            distributed_after=0,
        )

    def step(self, batch: Batch) -> None:
        super().step(batch)
        self._forget_velocity()

    def update(self) -> None:
        super().update()
        self._forget_velocity()

    def _forget_velocity(self) -> None:
        """Reset a velocity that CNTK does not reset: the first update of a block keeps nothing of it."""
        self._updates += 1
        done = self._updates % self.setup.knobs["block_steps"]  # updates of the present block
        if done < 2:
            self.local.set_kept(float(done))

    def gradient_bytes(self) -> Optional[int]:
        """Return the mean of a step: the parameters are sent once per block."""
        whole = super().gradient_bytes()
        return None if whole is None else -(-whole // int(self.setup.knobs["block_steps"]))

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), block_steps=self.setup.knobs["block_steps"])
