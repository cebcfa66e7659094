"""Local response normalisation several times faster than torch's own, with the same values.

`torch.nn.functional.local_response_norm` averages with a 3-d pooling over a copy. Here
the window's sum is made of shifted additions, in place and in either memory format,
and the backward is written out:

    s_i = k + alpha/n * sum over the window of x_j^2
    y_i = x_i * s_i^-beta
    dx_i = g_i * s_i^-beta - 2*alpha*beta/n * x_i * sum over the window of g_j * y_j / s_j

(Krizhevsky 2012, section 3.3, with Caffe's alpha/n.)
"""

from typing import Any, Tuple

import torch
from torch import nn


def window_sum(values: torch.Tensor, size: int) -> torch.Tensor:
    """Sum over `size` neighbouring channels centred on each; channels outside count as zero."""
    total = values.clone(memory_format=torch.preserve_format)
    channels = values.shape[1]
    for shift in range(1, min(size // 2, channels - 1) + 1):
        total.narrow(1, shift, channels - shift).add_(values.narrow(1, 0, channels - shift))
        total.narrow(1, 0, channels - shift).add_(values.narrow(1, shift, channels - shift))
    return total


def negative_power(base: torch.Tensor, beta: float) -> torch.Tensor:
    """The base to the power of -beta; for the usual 3/4 with two square roots, which cost a fraction of a power."""
    if beta != 0.75:
        return base.pow(-beta)
    root = base.rsqrt()
    return root * root.sqrt()


class Normalise(torch.autograd.Function):
    """The forward and backward above."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, size: int, alpha: float, beta: float, k: float) -> torch.Tensor:
        """Normalise (samples, channels, height, width)."""
        scale = window_sum(x * x, size).mul_(alpha / size).add_(k)
        factor = negative_power(scale, beta)
        ctx.save_for_backward(x, scale, factor)
        ctx.size, ctx.slope = size, 2 * alpha * beta / size
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Tuple[Any, ...]:
        """The gradient of x; none of the constants."""
        x, scale, factor = ctx.saved_tensors
        direct = gradient * factor
        through = window_sum((direct * x).div_(scale), ctx.size)
        return direct.sub_(through.mul_(x).mul_(ctx.slope)), None, None, None, None


class FastLRN(nn.Module):
    """Local response normalisation across channels, for odd sizes."""

    def __init__(self, size: int, alpha: float, beta: float, k: float) -> None:
        """`alpha` is divided by `size`, as in torch and Caffe."""
        super().__init__()
        self.constants = (size, alpha, beta, k)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Normalise.apply(x, *self.constants)
