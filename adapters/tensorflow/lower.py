"""Layer kinds as TensorFlow's own operations.

TensorFlow's conventions that matter: LRN takes alpha divided by the size; padding is explicit here, "SAME" only where
the result is equal (oneDNN has no backward kernels for explicit padding); the fused batch normalisation returns the
unbiased variance for the running one, and its factor is the *new* value's share; padding has the lowest number in max
pooling.

Layouts: images (samples, height, width, channels), or channels first by the knob `layout`; tokens (samples, positions,
width), or as whole numbers (samples, positions); weights HWIO and (in, out), tables (vocabulary, width).
"""

import math
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import kernels
from stagebench.adapters.tensorflow.windows import divisors, padding_needed, same_padding
from stagebench.workloads.graph import Layer

Tensor = Any  # tf.Tensor
Operation = Callable[..., Tensor]
Inputs = Any  # tf.Tensor (samples, height, width, channels), or channels first by the knob `layout`; or tokens: int64
# (samples, positions)
Labels = Any  # tf.Tensor, int64 (samples,) or (samples, positions)
Variable = Any  # tf.Variable, in TensorFlow's layout
Own = Dict[str, Any]  # a layer's variables by role, and "masks": a function from its name to its mask's seed


class Style(NamedTuple):
    """The choices of a lowering, made once for the whole network."""

    fast: bool  # allow faster operations than those of Keras' layers
    layout: str  # "NHWC" or "NCHW"
    precision: str  # "float32" or "float64"
    grouped: bool  # the device has gradients of grouped convolutions
    folded: Any  # names of flattens without a transposition: the dense weights have it
    training: bool = True  # False: inference, by running statistics, without dropout

    @property
    def channels(self) -> int:
        return 3 if self.layout == "NHWC" else 1

    def spatial(self, rows: Any, columns: Any, other: Any) -> List[Any]:
        return [other, rows, columns, other] if self.layout == "NHWC" else [other, other, rows, columns]


def described(style: Style) -> Dict[str, str]:
    """Describe the chosen operations, for a record's notes."""
    exact, channels_last = style.precision == "float64", style.layout == "NHWC"
    native_lrn = not style.fast and channels_last and not exact
    return {
        "batch_norm": "fused" if style.fast and not exact else "tf.nn.moments and tf.nn.batch_normalization",
        "lrn": "tf.nn" if native_lrn else "composed" + (", compiled by XLA" if style.fast else ""),
        "groups": "grouped convolution" if style.grouped else "split and joined",
        "padding": "SAME where it is the same, else tf.pad and VALID",
        "flatten": f"rows of dense weights follow {style.layout}",
    }


def lower(layer: Layer, own: Own, style: Style) -> Operation:
    """Return the layer as a function of its inputs, over one device's variables."""
    made: Operation = getattr(Lowering(layer, own, style), layer.kind)()
    return made


class Lowering:
    """A layer; the method that bears its kind's name makes the operation."""

    def __init__(self, layer: Layer, own: Own, style: Style) -> None:
        self._layer, self._attrs, self._own, self._style = layer, layer.attrs, own, style

    def conv(self) -> Operation:
        (pad, word), style = self._windowed(0), self._style
        weight, stride, groups = self._own["weight"], self._attrs["stride"], self._attrs["groups"]

        def convolve(x: Tensor, filters: Variable) -> Tensor:
            return tf.nn.conv2d(x, filters, stride, word, data_format=style.layout, dilations=1)

        def apply(x: Tensor) -> Tensor:
            x = pad(x)
            if groups == 1 or style.grouped:
                return convolve(x, weight)
            parts = zip(tf.split(x, groups, style.channels), tf.split(weight, groups, 3))
            return tf.concat([convolve(part, filters) for part, filters in parts], style.channels)

        return self._biased(apply, style.layout)

    def dense(self) -> Operation:
        weight, (*positions, entering) = self._own["weight"], self._layer.input_shapes[0]
        if not positions:
            return self._biased(lambda x: tf.matmul(x, weight))
        shape, is_table = [-1, *self._layer.shape], self._layer.shares_table
        rows = self._biased(lambda x: tf.matmul(tf.reshape(x, [-1, entering]), weight, transpose_b=is_table))
        return lambda x: tf.reshape(rows(x), shape)

    qkv = tied = dense

    def relu(self) -> Operation:
        return tf.nn.relu

    def max_pool(self) -> Operation:
        (pad, word), attrs, layout = self._windowed(None), self._attrs, self._style.layout
        return lambda x: tf.nn.max_pool2d(pad(x), attrs["kernel"], attrs["stride"], word, data_format=layout)

    def avg_pool(self) -> Operation:
        # Over explicit zeros, so that the divisor is the whole window; then corrected to the graph's count.
        pad, attrs, style = self._padded(0), self._attrs, self._style
        whole, counted = attrs["kernel"] ** 2, divisors(self._layer)
        correction = (
            (whole / counted).reshape(style.spatial(counted.shape[0], counted.shape[1], 1)).astype(style.precision)
        )

        def apply(x: Tensor) -> Tensor:
            y = tf.nn.avg_pool2d(pad(x), attrs["kernel"], attrs["stride"], "VALID", data_format=style.layout)
            return y if np.all(counted == whole) else y * correction

        return apply

    def lrn(self) -> Operation:
        style, (size, alpha, beta, k) = self._style, (self._attrs[name] for name in ("size", "alpha", "beta", "k"))
        has_kernel = style.precision == "float32" and style.layout == "NHWC" and size % 2
        if has_kernel and not style.fast:
            return lambda x: tf.nn.local_response_normalization(
                x, depth_radius=size // 2, bias=k, alpha=alpha / size, beta=beta
            )
        return kernels.composed(size, alpha, beta, k, style.channels, style.fast)

    def batch_norm(self) -> Operation:
        own, style, channels = self._own, self._style, self._layer.shape[0]
        if style.training and style.precision == "float32" and style.fast:
            return self._fused_batch_norm()
        momentum, axes = self._attrs["momentum"], [axis for axis in range(4) if axis != style.channels]
        mean_, variance_ = own["running_mean"], own["running_var"]
        shape = style.spatial(1, 1, 1)
        shape[style.channels] = channels
        epsilon = self._attrs["eps"]

        def observed(x: Tensor) -> Any:
            mean, variance = tf.nn.moments(x, axes)
            count = tf.cast(tf.size(x) // channels, x.dtype)
            mean_.assign(momentum * mean_ + (1 - momentum) * mean)
            variance_.assign(momentum * variance_ + (1 - momentum) * variance * count / (count - 1))
            return mean, variance

        def apply(x: Tensor) -> Tensor:
            mean, variance = observed(x) if style.training else (mean_, variance_)
            terms = [tf.reshape(each, shape) for each in (mean, variance, own["bias"], own["weight"])]
            return tf.nn.batch_normalization(x, *terms, variance_epsilon=epsilon)

        return apply

    def dropout(self) -> Operation:
        rate, masks, name = self._attrs["rate"], self._own["masks"], self._layer.name
        if not rate or not self._style.training:
            return lambda x: x
        # Stateless: equal masks after every build, with XLA too.
        return lambda x: tf.nn.experimental.stateless_dropout(x, rate, seed=masks(name), rng_alg="philox")

    def concat(self) -> Operation:
        axis = self._style.channels if len(self._layer.shape) == 3 else 1
        return lambda *xs: tf.concat(xs, axis)

    def add(self) -> Operation:
        return tf.add if len(self._layer.inputs) == 2 else lambda *xs: tf.add_n(xs)

    def flatten(self) -> Operation:
        layer, style = self._layer, self._style
        transposed = style.layout == "NHWC" and layer.name not in style.folded and len(layer.input_shapes[0]) == 3
        shape = [-1, layer.shape[0]]
        return lambda x: tf.reshape(tf.transpose(x, [0, 3, 1, 2]) if transposed else x, shape)

    def tokens(self) -> Operation:
        (channels, height, width), patch = self._layer.input_shapes[0], self._attrs["patch"]
        rows, columns, shape = height // patch, width // patch, [-1, *self._layer.shape]
        cut, order = [-1, channels, rows, patch, columns, patch], [0, 2, 4, 1, 3, 5]
        if self._style.layout == "NHWC":
            cut, order = [-1, rows, patch, columns, patch, channels], [0, 1, 3, 5, 2, 4]
        return lambda x: tf.reshape(tf.transpose(tf.reshape(x, cut), order), shape)

    def embedding(self) -> Operation:
        weight, vocabulary = self._own["weight"], self._attrs["vocabulary"]

        @tf.custom_gradient
        def look_up(table: Tensor, tokens: Tensor) -> Any:
            # tf.gather's own gradient is IndexedSlices, which few exchanges and kernels take; a tied head's is dense.
            return tf.gather(table, tokens), lambda dy: (tf.math.unsorted_segment_sum(dy, tokens, vocabulary), None)

        return lambda tokens: look_up(tf.convert_to_tensor(weight), tokens)

    def class_token(self) -> Operation:
        weight = self._own["weight"]
        return lambda x: tf.concat([tf.tile(weight, [tf.shape(x)[0], 1, 1]), x], 1)

    def positions(self) -> Operation:
        weight, positions = self._own["weight"], self._layer.shape[0]
        return lambda x: x + tf.convert_to_tensor(weight)[:, :positions]

    def layer_norm(self) -> Operation:
        own, epsilon = self._own, self._attrs["eps"]

        def apply(x: Tensor) -> Tensor:
            mean, variance = tf.nn.moments(x, [-1], keepdims=True)
            return tf.nn.batch_normalization(x, mean, variance, own["bias"], own["weight"], epsilon)

        return apply

    def attention(self) -> Operation:
        (positions, width), heads = self._layer.shape, self._attrs["heads"]
        factor = (width // heads) ** -0.5
        mask = np.triu(np.full((positions, positions), -np.inf), 1) if self._attrs["causal"] else None

        def apply(x: Tensor) -> Tensor:
            apart = tf.reshape(x, [-1, positions, 3, heads, width // heads])
            q, k, v = tf.unstack(tf.transpose(apart, [2, 0, 3, 1, 4]))
            scores = tf.matmul(q * factor, k, transpose_b=True)
            if mask is not None:
                scores = scores + tf.constant(mask, scores.dtype)
            y = tf.matmul(tf.nn.softmax(scores), v)
            return tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [-1, positions, width])

        return apply

    def gelu(self) -> Operation:
        # tf.nn.gelu takes its constants by way of float32, also in float64.
        return lambda x: 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))

    def select(self) -> Operation:
        position = self._attrs["position"]
        return lambda x: x[:, position]

    def mean(self) -> Operation:
        return lambda x: tf.reduce_mean(x, 1)

    def _padded(self, value: Any) -> Operation:
        """Return a function that pads the input to whole windows, by `value` or, if None, the lowest number."""
        rows, columns = padding_needed(self._layer)
        if not any(rows + columns):
            return lambda x: x
        paddings = self._style.spatial(rows, columns, (0, 0))
        return lambda x: tf.pad(x, paddings, constant_values=x.dtype.min if value is None else value)

    def _windowed(self, value: Any) -> Any:
        """Return (a function that pads, TensorFlow's word for the padding that is left)."""
        return ((lambda x: x), "SAME") if same_padding(self._layer) else (self._padded(value), "VALID")

    def _biased(self, apply: Operation, layout: Any = None) -> Operation:
        bias = self._own.get("bias")
        return apply if bias is None else lambda x: tf.nn.bias_add(apply(x), bias, data_format=layout)

    def _fused_batch_norm(self) -> Operation:
        own, epsilon, layout, factor = self._own, self._attrs["eps"], self._style.layout, 1 - self._attrs["momentum"]

        def apply(x: Tensor) -> Tensor:
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
                x,
                own["weight"],
                own["bias"],
                mean=own["running_mean"],
                variance=own["running_var"],
                epsilon=epsilon,
                data_format=layout,
                is_training=True,
                exponential_avg_factor=factor,
            )
            own["running_mean"].assign(mean)
            own["running_var"].assign(variance)
            return y

        return apply
