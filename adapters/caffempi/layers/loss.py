"""Softmax cross-entropy."""

from typing import Any

import torch

from adapters.caffempi.layers.base import Tensor


class SoftmaxLoss:
    """weight x mean cross-entropy over this rank's samples, and its gradient over all ranks' samples.

    The gradient is divided by the number of ranks here, where it is smallest, so that
    the sum which the exchange forms is already the average.
    """

    kind = "softmax_loss"

    def __init__(self, layer: str, weight: float, world: int) -> None:
        self.layer, self.name, self._weight, self._world = layer, layer + "_loss", weight, world
        self.logits: Any = None
        self._value: Any = None

    def forward(self, logits: Tensor, labels: Tensor) -> None:
        """Logits (samples, classes), labels int64 (samples,)."""
        shifted = logits - logits.amax(1, keepdim=True)
        self._log = shifted.sub_(shifted.exp().sum(1, keepdim=True).log_())
        self._labels, self.logits = labels.unsqueeze(1), logits
        self._value = self._log.gather(1, self._labels)

    def value(self) -> float:
        return -self._weight * float(self._value.mean())

    def backward(self) -> Tensor:
        """(softmax - one hot) x weight / global batch."""
        factor = self._weight / (len(self._log) * self._world)
        gradient = self._log.exp_().mul_(factor)
        gradient.scatter_add_(1, self._labels, torch.full_like(self._value, -factor))
        return gradient
