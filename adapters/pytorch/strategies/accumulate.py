"""`accumulate`: the batch in pieces, their gradients summed up before they are exchanged."""

from typing import Any, Dict, List

import torch

from adapters.pytorch.replica import ReplicaTrainer, microbatches
from adapters.pytorch.strategies.ddp import DDP
from suite.worker.contract import Batch, LayerTimes, Setup, Unsupported


class Accumulate(DDP):
    """DDP that exchanges with the last piece of a batch alone; on one rank there is no DDP."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.grouped = setup.world > 1
        self._count = int(setup.knobs["microbatches"])
        self._losses: List[torch.Tensor] = []

    def forward(self, batch: Batch) -> None:
        """Every piece, keeping what all of their backwards need: more memory than a native step takes."""
        found = [self._evaluate(self._staged_net, piece) for piece in self._pieces(batch)]
        self._losses = [loss / self._count for _, loss in found]
        self._heads = [torch.cat([heads[-1].detach() for heads, _ in found])]
        self._loss = torch.stack([loss.detach() for loss in self._losses]).sum()

    def backward(self) -> None:
        """Autograd adds up the pieces' gradients."""
        for loss in self._losses:
            loss.backward()
        self._losses = []

    def step(self, batch: Batch) -> None:
        """Take all pieces but the last under no_sync, as DDP's documentation teaches."""
        *earlier, last = self._pieces(batch)
        total = 0.0  # type: Any
        if self._ddp is None:
            total = self._accumulate(earlier)
        else:
            with self._ddp.no_sync():
                total = self._accumulate(earlier)
        total = total + self._accumulate([last])
        self._optimise()
        self._loss = total

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("the batch goes through the network in pieces, and gradients add up over them")

    def notes(self) -> Dict[str, Any]:
        """Without DDP's options where there is no DDP."""
        notes = super().notes() if self.grouped else ReplicaTrainer.notes(self)
        return dict(notes, microbatches=self._count)

    def _accumulate(self, pieces: List[Batch]) -> Any:
        total = 0.0  # type: Any
        for piece in pieces:
            loss = self._evaluate(self._native_net, piece)[1] / self._count
            loss.backward()
            total = total + loss.detach()
        return total

    def _pieces(self, batch: Batch) -> List[Batch]:
        return [Batch(*piece) for piece in microbatches(batch, self._count)]

    def _samples_at_once(self) -> int:
        return super()._samples_at_once() // self._count

    def _wrap(self) -> None:
        if self.grouped:
            super()._wrap()

    def _release(self) -> None:
        self._losses = []
        super()._release()
