"""Local response normalisation across channels.

TensorFlow's own has kernels for float32 alone, and a slow gradient (AlexNet's first, 8
samples, one thread: 40 ms there and back, against 8 ms here). Here the window's sum is
made of shifted slices, and XLA makes one loop of the forward and one of the backward,
which computes the scale again instead of keeping it:

    s_i = k + alpha/n * sum over the window of x_j^2
    y_i = x_i * s_i^-beta
    dx_i = g_i * s_i^-beta - 2*alpha*beta/n * x_i * sum over the window of g_j * y_j / s_j

(Krizhevsky 2012, section 3.3, with Caffe's alpha/n.)
"""

from typing import Any, Callable

import tensorflow as tf

Operation = Callable[..., Any]


def composed(size: int, alpha: float, beta: float, k: float, axis: int, compiled: bool) -> Operation:
    """Return the formulas above, with XLA if `compiled`; `axis` is the channels'."""

    def scaled(x: Any) -> Any:
        return k + alpha / size * window_sum(x * x, size, axis)

    def forward(x: Any) -> Any:
        return x * negative_power(scaled(x), beta)

    def backward(gradient: Any, x: Any) -> Any:
        scale = scaled(x)
        direct = gradient * negative_power(scale, beta)
        # An even window is not symmetric: the adjoint's reaches to the other side.
        return direct - 2 * alpha * beta / size * x * window_sum(direct * x / scale, size, axis, mirrored=True)

    if compiled:
        forward, backward = (tf.function(each, autograph=False, jit_compile=True) for each in (forward, backward))

    @tf.custom_gradient
    def normalise(x: Any) -> Any:
        return forward(x), lambda gradient: backward(gradient, x)

    return normalise


def window_sum(values: Any, size: int, axis: int, mirrored: bool = False) -> Any:
    """Sum over `size` neighbouring channels, size // 2 of them before; channels outside count as zero."""
    before, after = size // 2, size - 1 - size // 2
    if mirrored:
        before, after = after, before
    channels = values.shape[axis]
    pads, begin, extent = [[0, 0]] * 4, [0] * 4, [-1] * 4
    pads[axis], extent[axis] = [before, after], channels
    padded = tf.pad(values, pads)
    slices = []
    for shift in range(size):
        begin[axis] = shift
        slices.append(tf.slice(padded, list(begin), extent))
    return tf.add_n(slices)


def negative_power(base: Any, beta: float) -> Any:
    """Return base ** -beta; the usual 3/4 by two square roots, which cost a fraction of a power."""
    if beta != 0.75:
        return tf.pow(base, -beta)
    root = tf.math.rsqrt(base)
    return root * tf.sqrt(root)
