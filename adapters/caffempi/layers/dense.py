"""Fully connected layers.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Sequence

import torch

from adapters.caffempi.layers.base import Layer, Tensor


class Dense(Layer):
    """y = W x + b; gradients are written straight into the flat buffer."""

    def bind(self, parameters: Dict[str, Tensor], gradients: Dict[str, Tensor]) -> None:
        """Weight (out, in) and, perhaps, bias (out)."""
        self.weight, self.weight_gradient = parameters["weight"], gradients["weight"]
        self.bias, self.bias_gradient = parameters.get("bias"), gradients.get("bias")

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        """(samples, in) to (samples, out)."""
        self._x = xs[0]
        if self.bias is None:
            y = torch.mm(self._x, self.weight.t())
        else:
            y = torch.addmm(self.bias, self._x, self.weight.t())
        self.output_shape = tuple(y.shape[1:])
        return y

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        """Two products and a sum."""
        torch.mm(dy.t(), self._x, out=self.weight_gradient)
        self._x = None
        if self.bias is not None:
            torch.sum(dy, 0, out=self.bias_gradient)
        return (torch.mm(dy, self.weight) if self.wants[0] else None,)

    def macs(self) -> int:
        """Every output is a product over all inputs."""
        return int(self.output_shape[0]) * int(self.weight.shape[1])
