"""Batch normalisation and local response normalisation."""

from typing import Any, Dict, Sequence

import torch

from adapters.caffempi.layers.base import Layer, Tensor
from workloads.graph import Layer as Node

aten = torch.ops.aten


class BatchNormalisation(Layer):
    """Normalises by this rank's batch; running statistics are this rank's own."""

    def __init__(self, node: Node) -> None:
        """The graph's momentum weighs the old statistics, aten's weighs the new ones."""
        super().__init__(node)
        self._momentum, self._eps = 1.0 - node.attrs["momentum"], node.attrs["eps"]

    def bind(self, parameters: Dict[str, Tensor], gradients: Dict[str, Tensor]) -> None:
        """Scale and shift; running statistics start at mean 0 and variance 1."""
        self.weight, self.bias = parameters["weight"], parameters["bias"]
        self.weight_gradient, self.bias_gradient = gradients["weight"], gradients["bias"]
        self.running_mean, self.running_var = torch.zeros_like(self.bias), torch.ones_like(self.bias)

    def buffers(self) -> Dict[str, Tensor]:
        return {"running_mean": self.running_mean, "running_var": self.running_var}

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        y, mean, inverse = torch.native_batch_norm(
            xs[0], self.weight, self.bias, self.running_mean, self.running_var, True, self._momentum, self._eps
        )
        self._kept = xs[0], mean, inverse
        return y

    def predict(self, xs: Sequence[Tensor]) -> Tensor:
        statistics = self.weight, self.bias, self.running_mean, self.running_var
        return torch.native_batch_norm(xs[0], *statistics, False, 0.0, self._eps)[0]

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        x, mean, inverse = self._kept
        del self._kept
        dx, dw, db = aten.native_batch_norm_backward.default(
            dy,
            x,
            self.weight,
            self.running_mean,
            self.running_var,
            mean,
            inverse,
            True,
            self._eps,
            [self.wants[0], True, True],
        )
        self.weight_gradient.copy_(dw)
        self.bias_gradient.copy_(db)
        return (dx,)


class LocalResponse(Layer):
    """y = x s**-beta with s = k + alpha/size * (sum of squares over neighbouring channels).

    dx = dy s**-beta - 2 alpha beta / size * x * (sum over neighbours of dy x s**(-beta - 1)).
    Windows are summed by shifted additions, which cost the same in both memory formats.
    """

    def __init__(self, node: Node) -> None:
        """An even window reaches one channel further down than up, as in Caffe and PyTorch."""
        super().__init__(node)
        attrs = node.attrs
        self._share, self._beta, self._k = attrs["alpha"] / attrs["size"], attrs["beta"], attrs["k"]
        self._below, self._above = attrs["size"] // 2, (attrs["size"] - 1) // 2

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        x = xs[0]
        square = x * x
        scale = torch.add(square.mul(self._share), self._k)
        window(scale, square, self._below, self._above, self._share)
        power, inverse = powers(scale, self._beta)
        self._kept = x, power, inverse
        return x * power

    def backward(self, dy: Tensor, owned: bool) -> Sequence[Any]:
        x, power, inverse = self._kept
        del self._kept
        direct = dy * power
        through = (direct * x).mul_(inverse)
        total = through.clone()
        window(total, through, self._above, self._below, 1.0)
        return (direct.addcmul_(x, total, value=-2.0 * self._share * self._beta),)


def window(total: Tensor, x: Tensor, below: int, above: int, factor: float) -> None:
    """Add factor * x of the channels up to `below` lower and `above` higher, in place."""
    channels = x.shape[1]
    for shift in range(1, min(below, channels - 1) + 1):
        total[:, shift:].add_(x[:, :-shift], alpha=factor)
    for shift in range(1, min(above, channels - 1) + 1):
        total[:, :-shift].add_(x[:, shift:], alpha=factor)


def powers(scale: Tensor, beta: float) -> Any:
    """(scale**-beta, 1/scale); the usual beta of 3/4 needs no logarithm."""
    if beta == 0.75:
        root = scale.rsqrt_()
        return root.sqrt().mul_(root), root.mul_(root)
    return scale.pow(-beta), scale.reciprocal()
