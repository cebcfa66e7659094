"""Local response normalisation made of MXNet's elementary operators.

MXNet's own LRN operator is oneDNN's, and in MXNet 1.9.1 its gradient is wrong where a
convolution or a pooling follows it: the knob `lrn` keeps it available, and the proof
refuses it. Made of parts it is right, and faster.

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
    """Sum over the channels c - size//2 ... c + (size-1)//2; those outside count as zero."""
    before, after = min(size // 2, channels - 1), min((size - 1) // 2, channels - 1)
    parts = [values]
    zeros = F.zeros_like(F.slice_axis(values, axis=1, begin=0, end=max(before, after, 1)))
    if before:
        parts.insert(0, F.slice_axis(zeros, axis=1, begin=0, end=before))
    if after:
        parts.append(F.slice_axis(zeros, axis=1, begin=0, end=after))
    padded = F.Concat(*parts, dim=1)
    total = F.slice_axis(padded, axis=1, begin=0, end=channels)
    for shift in range(1, before + after + 1):
        total = F.elemwise_add(total, F.slice_axis(padded, axis=1, begin=shift, end=shift + channels))
    return total
