"""`local_sgd`: every rank trains alone and the models are averaged now and then (Stich 2018)."""

from typing import Any, Dict, Optional

import torch
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from adapters.pytorch.replica import ReplicaTrainer
from suite.worker.contract import Batch, Setup


class LocalSGD(ReplicaTrainer):
    """torch's PeriodicModelAverager after every update; momentum stays each rank's own."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.grouped = setup.world > 1
        self._period = int(setup.knobs["period"])
        self._averager: Any = None

    def step_alone(self, batch: Batch) -> None:
        averager, self._averager = self._averager, None
        self.step(batch)
        self._averager = averager

    def gradient_bytes(self) -> Optional[int]:
        """A step's mean: the parameters, once a period."""
        whole = super().gradient_bytes()
        return None if whole is None else -(-whole // self._period)

    def notes(self) -> Dict[str, Any]:
        period = self._period  # the averager asks step % period, and counts from 0
        words = "models averaged after the steps 1, %d, %d, ..." % (period + 1, 2 * period + 1)
        return dict(super().notes(), local_sgd=words)

    def _optimise(self) -> None:
        self._optimiser.step()
        if self._averager is not None:
            self._averager.average_parameters(self._net.parameters())  # it leaves out what has no gradient
        self._optimiser.zero_grad(set_to_none=True)

    def _wrap(self) -> None:
        if self.grouped:
            self._averager = PeriodicModelAverager(period=self._period, warmup_steps=0)

    def _weights_format(self) -> Any:
        return torch.contiguous_format  # as the averager leaves them

    def _release(self) -> None:
        self._averager = None
        super()._release()
