"""Block momentum: every rank trains alone for a block of steps, then the models are joined.

K. Chen, Q. Huo, "Scalable training of deep learning machines by incremental block training with
intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016.
"""

from typing import Any, Dict, Optional

from adapters.cntk.distributed import ExchangeInUpdate
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import Setup


class BlockMomentum(ExchangeInUpdate):
    """A block ends after `block_steps` steps; then the velocity is forgotten."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.share = 1.0 / setup.world
        self._updates = 0

    def distributed_learner(self, local: Any) -> Any:
        """With CNTK's own block momentum: 1 - 1/ranks a block."""
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

    def step(self, batch: Any) -> None:
        super().step(batch)
        self._forget_velocity()

    def update(self) -> None:
        super().update()
        self._forget_velocity()

    def _forget_velocity(self) -> None:
        """Where it is not CNTK's own, which CNTK resets: the first update of a block keeps nothing of it."""
        self._updates += 1
        done = self._updates % self.setup.knobs["block_steps"]  # of the next block, or of this one
        if done < 2:
            self.local.set_kept(float(done))

    def gradient_bytes(self) -> Optional[int]:
        """A step's mean: the parameters, once a block."""
        whole = super().gradient_bytes()
        return None if whole is None else -(-whole // int(self.setup.knobs["block_steps"]))

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), block_steps=self.setup.knobs["block_steps"])
