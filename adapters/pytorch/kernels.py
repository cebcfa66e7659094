"""Operations that are faster than torch's own, with equal values: local response normalisation, and products on CPUs.

`torch.nn.functional.local_response_norm` averages by a 3-d pooling over a copy. Here the window's sum is made of
shifted additions, in place and in either memory format, and the backward is written out:

    s_i = k + alpha/n * sum over the window of x_j^2
    y_i = x_i * s_i^-beta
    dx_i = g_i * s_i^-beta - 2*alpha*beta/n * x_i * sum over the window of g_j * y_j / s_j

(Krizhevsky 2012, section 3.3, with Caffe's alpha/n.) A window of even size has one more channel below than above, as in
Caffe and torch; the backward's is mirrored.

Products of float32 matrices are oneDNN's here, torch's own are MKL's. `stagebench.adapters.pytorch.candidates` chooses.

Images are (samples, channels, height, width), weights (out, in, ...).
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry, register_flop_formula


def normalised(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tuple[Tensor, Tensor, Tensor]:
    """Return y, and s^-beta and 1/s, which `normalised_backward` takes."""
    square = x * x
    scale = torch.mul(square, alpha / size).add_(k)
    add_window(scale, square, size // 2, (size - 1) // 2, alpha / size)
    if beta == 0.75:  # two square roots cost a fraction of a power
        root = scale.rsqrt_()
        power = root.sqrt().mul_(root)
        inverse = root.mul_(root)
    else:
        power = scale.pow(-beta)
        inverse = scale.reciprocal()
    return x * power, power, inverse


def normalised_backward(
    dy: Tensor, x: Tensor, power: Tensor, inverse: Tensor, size: int, alpha: float, beta: float
) -> Tensor:
    """Return the gradient of x."""
    dx = dy * power
    through = (dx * x).mul_(inverse)
    total = through.clone(memory_format=torch.preserve_format)
    add_window(total, through, (size - 1) // 2, size // 2, 1.0)
    return dx.addcmul_(x, total, value=-2.0 * alpha / size * beta)


def add_window(total: Tensor, x: Tensor, below: int, above: int, factor: float) -> None:
    """Add factor * x of the channels up to `below` lower and `above` higher, in place."""
    channels = x.shape[1]
    for shift in range(1, min(below, channels - 1) + 1):
        total[:, shift:].add_(x[:, :-shift], alpha=factor)
    for shift in range(1, min(above, channels - 1) + 1):
        total[:, :-shift].add_(x[:, shift:], alpha=factor)


class Normalise(torch.autograd.Function):
    """Local response normalisation, for autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
        y, power, inverse = normalised(x, size, alpha, beta, k)
        ctx.save_for_backward(x, power, inverse)
        ctx.constants = (size, alpha, beta)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Any, ...]:
        """Return the gradient of x, and none of the constants."""
        return normalised_backward(dy, *ctx.saved_tensors, *ctx.constants), None, None, None, None


class FastLRN(nn.Module):
    """Local response normalisation across channels; `alpha` is divided by `size`, as in torch and Caffe."""

    def __init__(self, size: int, alpha: float, beta: float, k: float) -> None:
        super().__init__()
        self.constants = (size, alpha, beta, k)

    def forward(self, x: Tensor) -> Tensor:
        return Normalise.apply(x, *self.constants)


linear: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # None: this PyTorch has no oneDNN


def by_onednn(x: Tensor, matrix: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Multiply x (rows, in) by a matrix (out, in), transposed, and add the bias; neither needs to be contiguous."""
    return linear(x, matrix, bias, "none", [], "")


if linear is not None:

    @register_flop_formula(linear)
    def product_flops(x: Any, matrix: Any, *_: Any, **__: Any) -> int:
        """Count a product's operations, for the check of multiply-accumulates."""
        return 2 * x[0] * x[1] * matrix[0]


flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
if flash not in flop_registry:

    @register_flop_formula(flash)
    def attention_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
        """Count the two products of each head, of tensors (samples, heads, positions, width)."""
        samples, heads, positions, width = q
        return 4 * samples * heads * positions * int(k[2]) * width


class Product(torch.autograd.Function):
    """`by_onednn` and its backward, two more products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        """Multiply x (rows, in) by a weight (out, in) or (out, in, 1, 1)."""
        ctx.save_for_backward(x, weight)
        return by_onednn(x, weight.view(len(weight), -1), bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Return the gradients of x, weight and bias."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        dx = by_onednn(dy, weight.view(len(weight), -1).t()) if of_x else None
        # With the weight's own strides: DDP would copy any other gradient into its buckets.
        dw = by_onednn(dy.t(), x.t()).as_strided(weight.shape, weight.stride()) if of_weight else None
        return dx, dw, dy.sum(0) if of_bias else None


class Dense(nn.Linear):
    """torch.nn.Linear by oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiply features (samples, in), or tokens (samples, positions, in)."""
        if x.dim() == 2:
            return Product.apply(x, self.weight, self.bias)
        return Product.apply(x.flatten(0, -2), self.weight, self.bias).unflatten(0, x.shape[:-1])


class Pointwise(nn.Conv2d):
    """A 1x1 convolution as a product over pixels; without a copy where memory is channels-last."""

    def forward(self, x: Tensor) -> Tensor:
        samples, channels, height, width = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(-1, channels)
        y = Product.apply(pixels, self.weight, self.bias)
        return y.view(samples, height, width, -1).permute(0, 3, 1, 2)
