"""Layer kinds as TensorFlow's own operations.

TensorFlow's conventions that matter: LRN wants alpha divided by the size; padding is
explicit here, "SAME" only where it is the same (see `windows`); the fused batch
normalisation gives the unbiased variance for the running one, and its factor is the
share of the *new* value; maxima over padding are kept from winning by the lowest number.
"""

from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow import lrn, windows
from workloads.graph import Layer

Operation = Callable[..., Any]
Own = Dict[str, Any]  # the layer's variables by role, and "masks": what a dropout's seed is made of


class Style(NamedTuple):
    """How to lower: decided once for the whole network."""

    fast: bool  # allow what is faster than what Keras' layers call
    layout: str  # "NHWC" or "NCHW"
    precision: str  # "float32" or "float64"
    grouped: bool  # whether the device has gradients of grouped convolutions
    folded: Any  # names of the flattens that need no transposition: the dense weights have it
    training: bool = True  # or in use: running statistics, no dropout

    @property
    def channels(self) -> int:
        return 3 if self.layout == "NHWC" else 1

    def spatial(self, rows: Any, columns: Any, other: Any) -> List[Any]:
        return [other, rows, columns, other] if self.layout == "NHWC" else [other, other, rows, columns]


def described(style: Style) -> Dict[str, str]:
    """What was chosen where TensorFlow offers several, in words."""
    exact, channels_last = style.precision == "float64", style.layout == "NHWC"
    native_lrn = not style.fast and channels_last and not exact
    return {
        "batch_norm": "fused" if style.fast and not exact else "tf.nn.moments and tf.nn.batch_normalization",
        "lrn": "tf.nn" if native_lrn else "composed" + (", compiled by XLA" if style.fast else ""),
        "groups": "grouped convolution" if style.grouped else "split and joined",
        "padding": "SAME where it is the same, else tf.pad and VALID",
        "flatten": "rows of dense weights follow %s" % style.layout,
    }


def lower(layer: Layer, own: Own, style: Style) -> Operation:
    """The layer as a function of its inputs, for one device's variables."""
    return MAKERS[layer.kind](layer, layer.attrs, own, style)


def _padded(layer: Layer, style: Style, value: Any) -> Operation:
    """What brings the input to whole windows; the identity where nothing is needed."""
    rows, columns = windows.needed(layer)
    if not any(rows + columns):
        return lambda x: x
    paddings = style.spatial(rows, columns, (0, 0))
    return lambda x: tf.pad(x, paddings, constant_values=x.dtype.min if value is None else value)


def _windowed(layer: Layer, style: Style, value: Any) -> Any:
    """(what pads, TensorFlow's word for the rest)."""
    if windows.same(layer):
        return (lambda x: x), "SAME"
    return _padded(layer, style, value), "VALID"


def _conv(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    pad, word = _windowed(layer, style, 0)
    weight, bias, stride, groups = own["weight"], own.get("bias"), attrs["stride"], attrs["groups"]

    def convolve(x: Any, filters: Any) -> Any:
        return tf.nn.conv2d(x, filters, stride, word, data_format=style.layout, dilations=1)

    def apply(x: Any) -> Any:
        x = pad(x)
        if groups == 1 or style.grouped:
            y = convolve(x, weight)
        else:
            parts = zip(tf.split(x, groups, style.channels), tf.split(weight, groups, 3))
            y = tf.concat([convolve(part, filters) for part, filters in parts], style.channels)
        return y if bias is None else tf.nn.bias_add(y, bias, data_format=style.layout)

    return apply


def _dense(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    weight, bias = own["weight"], own.get("bias")
    if bias is None:
        return lambda x: tf.matmul(x, weight)
    return lambda x: tf.nn.bias_add(tf.matmul(x, weight), bias)


def _relu(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    return tf.nn.relu


def _max_pool(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    pad, word = _windowed(layer, style, None)
    return lambda x: tf.nn.max_pool2d(pad(x), attrs["kernel"], attrs["stride"], word, data_format=style.layout)


def _avg_pool(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    # Over explicit zeros, so that the divisor is the whole window; then by what the graph counts.
    pad = _padded(layer, style, 0)
    whole, counted = attrs["kernel"] ** 2, windows.divisors(layer)
    correction = (whole / counted).reshape(style.spatial(counted.shape[0], counted.shape[1], 1)).astype(style.precision)

    def apply(x: Any) -> Any:
        y = tf.nn.avg_pool2d(pad(x), attrs["kernel"], attrs["stride"], "VALID", data_format=style.layout)
        return y if np.all(counted == whole) else y * correction

    return apply


def _lrn(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    constants = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"], style.channels
    has_kernel = style.precision == "float32" and style.layout == "NHWC" and attrs["size"] % 2
    if has_kernel and not style.fast:
        return lrn.native(*constants)
    return lrn.composed(*constants, compiled=style.fast)


def _batch_norm(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    if style.training and style.precision == "float32" and style.fast:
        return _fused_batch_norm(attrs, own, style)
    momentum, axes = attrs["momentum"], [axis for axis in range(4) if axis != style.channels]
    mean_, variance_ = own["running_mean"], own["running_var"]
    shape = style.spatial(1, 1, 1)
    shape[style.channels] = layer.shape[0]

    def observed(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, axes)
        count = tf.cast(tf.size(x) // layer.shape[0], x.dtype)
        mean_.assign(momentum * mean_ + (1 - momentum) * mean)
        variance_.assign(momentum * variance_ + (1 - momentum) * variance * count / (count - 1))
        return mean, variance

    def apply(x: Any) -> Any:
        mean, variance = observed(x) if style.training else (mean_, variance_)
        terms = [tf.reshape(each, shape) for each in (mean, variance, own["bias"], own["weight"])]
        return tf.nn.batch_normalization(x, *terms, variance_epsilon=attrs["eps"])

    return apply


def _fused_batch_norm(attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    def apply(x: Any) -> Any:
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x,
            own["weight"],
            own["bias"],
            mean=own["running_mean"],
            variance=own["running_var"],
            epsilon=attrs["eps"],
            data_format=style.layout,
            is_training=True,
            exponential_avg_factor=1 - attrs["momentum"],
        )
        own["running_mean"].assign(mean)
        own["running_var"].assign(variance)
        return y

    return apply


def _dropout(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    rate = attrs["rate"]
    if not rate or not style.training:
        return lambda x: x
    # Stateless: the same masks again after every build, also where XLA compiles.
    return lambda x: tf.nn.experimental.stateless_dropout(x, rate, seed=own["masks"](layer.name), rng_alg="philox")


def _concat(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    axis = style.channels if len(layer.shape) == 3 else 1
    return lambda *xs: tf.concat(xs, axis)


def _add(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    return tf.add if len(layer.inputs) == 2 else lambda *xs: tf.add_n(xs)


def _flatten(layer: Layer, attrs: Dict[str, Any], own: Own, style: Style) -> Operation:
    transposed = style.layout == "NHWC" and layer.name not in style.folded and len(layer.input_shapes[0]) == 3
    shape = [-1, layer.shape[0]]
    return lambda x: tf.reshape(tf.transpose(x, [0, 3, 1, 2]) if transposed else x, shape)


MAKERS: Dict[str, Callable[[Layer, Dict[str, Any], Own, Style], Operation]] = {
    "conv": _conv,
    "dense": _dense,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "lrn": _lrn,
    "dropout": _dropout,
    "concat": _concat,
    "add": _add,
    "flatten": _flatten,
}
