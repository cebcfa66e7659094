"""Layer kinds as MXNet's own operators, the ones that Gluon's layers are made of.

MXNet's conventions that matter: LRN takes the graph's alpha (it divides by the size
itself); batch-norm momentum is the share of the *old* value; a pooling that rounds up is
called "full" and keeps a last window that lies in the padding alone; batch
normalisation ignores gamma unless asked otherwise. Every default is passed.

`ops` (Gluon's `F`) is `mx.sym` while a graph is traced, or `mx.nd`.
"""

import math
from functools import reduce
from typing import Any, Dict, List, NamedTuple

from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads.graph import Layer
from stagebench.workloads.kinds import pooled

# mx.sym.Symbol or mx.nd.NDArray: (samples, channels, height, width), (samples, features), (samples, positions, width)
# or with positions first; the numbers of tokens: int32, (samples, positions)
Array = Any
Params = Dict[str, Array]  # every parameter and running statistic by canonical name


class Choices(NamedTuple):
    """The choices that `lower` knows; `Net` adds what follows from its graph."""

    native_lrn: bool
    tuned: bool
    precision: str
    positions_first: bool = False  # as the interleaved products of attention take them, in float32
    by_head: Dict[str, int] = {}  # heads by `qkv` layer whose rows are (heads, 3, d)


def lower(ops: Any, layer: Layer, inputs: List[Array], params: Params, choices: Choices) -> Array:
    """Return the layer's output for its inputs."""
    return getattr(Lowering(ops, layer, params, choices), layer.kind)(*inputs)


class Lowering:
    """A layer; the method that bears its kind's name computes its output."""

    def __init__(self, ops: Any, layer: Layer, params: Params, choices: Choices) -> None:
        self._ops, self._layer, self._attrs, self._choices, self._params = ops, layer, layer.attrs, choices, params
        self._weights = [params[name] for name in layer.roles.values()]
        self._statistics = [params[name] for name, _ in layer.buffers]
        self._axis = 0 if choices.positions_first else 1  # of positions

    def conv(self, x: Array) -> Array:
        attrs = self._attrs
        return self._ops.Convolution(
            x,
            *self._weights,
            kernel=(attrs["kernel"],) * 2,
            stride=(attrs["stride"],) * 2,
            dilate=(1, 1),
            pad=(attrs["pad"],) * 2,
            num_filter=attrs["out"],
            num_group=attrs["groups"],
            no_bias=not attrs["bias"],
            layout="NCHW",
            name=self._layer.name,
        )

    def dense(self, x: Array) -> Array:
        options = {"num_hidden": self._layer.shape[-1], "no_bias": len(self._weights) == 1, "flatten": False}
        return self._ops.FullyConnected(x, *self._weights, name=self._layer.name, **options)

    tied = qkv = dense

    def batch_norm(self, x: Array) -> Array:
        return self._ops.BatchNorm(
            x,
            *self._weights,
            *self._statistics,
            eps=self._attrs["eps"],
            momentum=self._attrs["momentum"],
            fix_gamma=False,
            use_global_stats=False,
            output_mean_var=False,
            axis=1,
            name=self._layer.name,
        )

    def relu(self, x: Array) -> Array:
        # Not ops.relu: Activation is oneDNN's and keeps its blocked layouts.
        return self._ops.Activation(x, act_type="relu", name=self._layer.name)

    def max_pool(self, x: Array) -> Array:
        return self._ops.Pooling(x, pool_type="max", **self._window())

    def avg_pool(self, x: Array) -> Array:
        return self._ops.Pooling(x, pool_type="avg", count_include_pad=self._attrs["count_padding"], **self._window())

    def lrn(self, x: Array) -> Array:
        size, alpha, beta, k = (self._attrs[name] for name in ("size", "alpha", "beta", "k"))
        if not self._choices.native_lrn:
            channels = self._layer.input_shapes[0][0]
            return composed_lrn(self._ops, x, channels, size, alpha, beta, k, self._choices.tuned)
        if size % 2 == 0 or self._choices.precision != "float32":
            raise Unsupported(
                f"layer {self._layer.name!r} normalises over {size} channels in {self._choices.precision}; "
                "MXNet's own LRN wants an odd number and float32, lrn = 'composed' takes any"
            )
        return self._ops.LRN(x, nsize=size, alpha=alpha, beta=beta, knorm=k, name=self._layer.name)

    def dropout(self, x: Array) -> Array:
        rate = self._attrs["rate"]
        return self._ops.Dropout(x, p=rate, mode="training", axes=(), name=self._layer.name) if rate else x

    def concat(self, *inputs: Array) -> Array:
        return self._ops.Concat(*inputs, dim=1, name=self._layer.name)

    def add(self, *inputs: Array) -> Array:
        return reduce(self._ops.elemwise_add, inputs)

    def flatten(self, x: Array) -> Array:
        if self._axis == 0 and len(self._layer.input_shapes[0]) == 2:
            x = self._ops.swapaxes(x, dim1=0, dim2=1)
        return self._ops.Flatten(x, name=self._layer.name)

    def tokens(self, x: Array) -> Array:
        ops, (channels, height, width), patch = self._ops, self._layer.input_shapes[0], self._attrs["patch"]
        cut = ops.reshape(x, shape=(-1, channels, height // patch, patch, width // patch, patch))
        if self._axis == 0:
            return ops.reshape(ops.transpose(cut, axes=(2, 4, 0, 1, 3, 5)), shape=(-3, 0, -1))
        return ops.reshape(ops.transpose(cut, axes=(0, 2, 4, 1, 3, 5)), shape=(-1, *self._layer.shape))

    def embedding(self, x: Array) -> Array:
        options = {"input_dim": self._attrs["vocabulary"], "output_dim": self._attrs["out"], "sparse_grad": False}
        x = x if self._axis else self._ops.transpose(x)
        return self._ops.Embedding(x, *self._weights, dtype=self._choices.precision, name=self._layer.name, **options)

    def class_token(self, x: Array) -> Array:
        one = self._ops.slice_axis(x, axis=self._axis, begin=0, end=1)
        return self._ops.Concat(
            self._ops.broadcast_like(self._weights[0], one), x, dim=self._axis, name=self._layer.name
        )

    def positions(self, x: Array) -> Array:
        rows = self._ops.slice_axis(self._weights[0], axis=1, begin=0, end=self._layer.shape[0])
        rows = rows if self._axis else self._ops.swapaxes(rows, dim1=0, dim2=1)
        return self._ops.broadcast_add(x, rows, name=self._layer.name)

    def layer_norm(self, x: Array) -> Array:
        return self._ops.LayerNorm(x, *self._weights, axis=-1, eps=self._attrs["eps"], name=self._layer.name)

    def attention(self, x: Array) -> Array:
        ops, heads, width = self._ops, self._attrs["heads"], self._layer.shape[1]
        if self._axis == 0:
            if self._layer.inputs[0] not in self._choices.by_head:
                x = ops.swapaxes(ops.reshape(x, shape=(0, 0, 3, heads, -1)), dim1=2, dim2=3)
                x = ops.reshape(x, shape=(0, 0, -1))
            scores = self._masked(ops.contrib.interleaved_matmul_selfatt_qk(x, heads=heads))
            weights = ops.softmax(scores, axis=-1)
            return ops.contrib.interleaved_matmul_selfatt_valatt(x, weights, heads=heads, name=self._layer.name)
        apart = ops.reshape(x, shape=(0, 0, 3, heads, -1))
        apart = ops.reshape(ops.transpose(apart, axes=(2, 0, 3, 1, 4)), shape=(0, -3, 0, 0))
        q, k, v = (ops.reshape(ops.slice_axis(apart, axis=0, begin=i, end=i + 1), shape=(-3, 0, 0)) for i in range(3))
        scores = self._masked(ops.batch_dot(q * (width // heads) ** -0.5, k, transpose_b=True))
        y = ops.reshape(ops.batch_dot(ops.softmax(scores, axis=-1), v), shape=(-4, -1, heads, 0, 0))
        return ops.reshape(ops.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -3), name=self._layer.name)

    def gelu(self, x: Array) -> Array:
        # Written out: MXNet's own is the exact one.
        return 0.5 * x * (1.0 + self._ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))

    def select(self, x: Array) -> Array:
        position = self._attrs["position"]
        one = self._ops.slice_axis(x, axis=self._axis, begin=position, end=position + 1)
        return self._ops.reshape(one, shape=(-3, 0), name=self._layer.name)

    def mean(self, x: Array) -> Array:
        return self._ops.mean(x, axis=self._axis, name=self._layer.name)

    def _masked(self, scores: Array) -> Array:
        """Add -inf above the diagonal of causal scores (samples x heads, positions, positions).

        What is added is made once for all layers, among their parameters.
        """
        if not self._attrs["causal"]:
            return scores
        ops, name = self._ops, f"mask of {self._layer.shape[0]}"
        if name not in self._params:
            zeros = ops.zeros_like(ops.slice_axis(scores, axis=0, begin=0, end=1))
            rows = ops.contrib.arange_like(ops.slice_axis(zeros, axis=1, begin=0, end=1), axis=2)
            after = ops.broadcast_greater(ops.reshape(rows, shape=(1, 1, -1)), ops.reshape(rows, shape=(1, -1, 1)))
            self._params[name] = ops.BlockGrad(ops.where(after, zeros - math.inf, zeros))
        return ops.broadcast_add(scores, self._params[name])

    def _window(self) -> Dict[str, Any]:
        """Return kernel, stride, padding and rounding; Unsupported if MXNet rounds up differently."""
        wanted, extents = self._layer.shape[1:], self._layer.input_shapes[0][1:]
        kernel, stride, pad = (self._attrs[name] for name in ("kernel", "stride", "pad"))
        down = tuple(pooled(extent, kernel, stride, pad, ceil=False) for extent in extents)
        up = tuple(1 - (kernel - 2 * pad - extent) // stride for extent in extents)
        if wanted not in (down, up):
            raise Unsupported(
                f"layer {self._layer.name!r} pools {extents!r} to {wanted!r}; MXNet makes {down!r} of it when it "
                f"rounds down and {up!r} when it rounds up, along both axes alike"
            )
        return {
            "kernel": (kernel,) * 2,
            "stride": (stride,) * 2,
            "pad": (pad,) * 2,
            "pooling_convention": "valid" if wanted == down else "full",
            "global_pool": False,
            "layout": "NCHW",
            "name": self._layer.name,
        }


def composed_lrn(
    ops: Any, x: Array, channels: int, size: int, alpha: float, beta: float, k: float, tuned: bool
) -> Array:
    """Local response normalisation, of x (samples, channels, height, width), by MXNet's elementary operators.

    MXNet's own LRN operator is oneDNN's, and in MXNet 1.9.1 its gradient is wrong where a
    convolution or a pooling follows it: the knob `lrn` keeps it available, and the proof
    refuses it. tests/validation/mxnet_native.py measures the one's speed against the other's.

        y = x * (k + alpha/size * (sum of squares over `size` channels)) ** -beta

    (Krizhevsky 2012, section 3.3, with Caffe's alpha/n.)
    """
    scale = k + (alpha / size) * _sum_of_neighbours(ops, ops.square(x), channels, size)
    return ops.elemwise_mul(x, ops.exp(-beta * ops.log(scale)) if tuned else scale**-beta)


def _sum_of_neighbours(ops: Any, values: Array, channels: int, size: int) -> Array:
    """Sum over the channels c - size//2 ... c + (size-1)//2; channels outside count as zero.

    Sums over 1, 2, 4, ... channels are built from one another, and the window's from those that make up its size:
    three additions for five channels.
    """
    before, after = min(size // 2, channels - 1), min((size - 1) // 2, channels - 1)
    sums, total, begin, width = _padded(ops, values, before, after), None, 0, 1
    extent, size = channels + before + after, before + 1 + after
    while width <= size:
        if size & width:
            part = ops.slice_axis(sums, axis=1, begin=begin, end=begin + channels)
            total = part if total is None else ops.elemwise_add(total, part)
            begin += width
        if 2 * width <= size:
            extent -= width
            first, second = (ops.slice_axis(sums, axis=1, begin=at, end=at + extent) for at in (0, width))
            sums = ops.elemwise_add(first, second)
        width *= 2
    return total


def _padded(ops: Any, values: Array, before: int, after: int) -> Array:
    """Pad with channels of zeros."""
    slices = [values]
    if before:
        slices.insert(0, ops.zeros_like(ops.slice_axis(values, axis=1, begin=0, end=before)))
    if after:
        slices.append(ops.zeros_like(ops.slice_axis(values, axis=1, begin=0, end=after)))
    return ops.Concat(*slices, dim=1) if len(slices) > 1 else values
