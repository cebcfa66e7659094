"""Local response normalisation made of MXNet's elementary operators.

MXNet's own LRN operator is oneDNN's, and in MXNet 1.9.1 its gradient is wrong where a
convolution or a pooling follows it: the knob `lrn` keeps it available, and the proof
refuses it. Made of parts it is right; tests/benchmarks/mxnet_native.py measures its speed
against MXNet's own.

    y = x * (k + alpha/size * (sum of squares over `size` channels)) ** -beta

(Krizhevsky 2012, section 3.3, with Caffe's alpha/n.) Oldest Python: 3.6.
"""

from typing import Any


def composed(
    F: Any,  # noqa: N803 - Gluon's name for mx.nd or mx.sym
    x: Any,
    channels: int,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    tuned: bool,
) -> Any:
    """Same shape as x, (samples, channels, height, width)."""
    scale = k + (alpha / size) * window_sum(F, F.square(x), channels, size)
    return F.elemwise_mul(x, F.exp(-beta * F.log(scale)) if tuned else scale**-beta)


def window_sum(F: Any, values: Any, channels: int, size: int) -> Any:  # noqa: N803
    """Sum over the channels c - size//2 ... c + (size-1)//2; those outside count as zero.

    Sums over 1, 2, 4, ... channels come from one another, and the window of those that
    make up its size: three additions for five channels.
    """
    before, after = min(size // 2, channels - 1), min((size - 1) // 2, channels - 1)
    sums, total, begin, width = padded(F, values, before, after), None, 0, 1
    extent, size = channels + before + after, before + 1 + after
    while width <= size:
        if size & width:
            part = F.slice_axis(sums, axis=1, begin=begin, end=begin + channels)
            total = part if total is None else F.elemwise_add(total, part)
            begin += width
        if 2 * width <= size:
            extent -= width
            first, second = (F.slice_axis(sums, axis=1, begin=at, end=at + extent) for at in (0, width))
            sums = F.elemwise_add(first, second)
        width *= 2
    return total


def padded(F: Any, values: Any, before: int, after: int) -> Any:  # noqa: N803
    """The values between channels of zeros."""
    parts = [values]
    if before:
        parts.insert(0, F.zeros_like(F.slice_axis(values, axis=1, begin=0, end=before)))
    if after:
        parts.append(F.zeros_like(F.slice_axis(values, axis=1, begin=0, end=after)))
    return F.Concat(*parts, dim=1) if len(parts) > 1 else values
