"""Layer kinds as JAX's own operations, channels last.

JAX's conventions that matter: `relu` has gradient 0 at 0 where `maximum` has a half; windows are padded explicitly,
one number per side; JAX keeps no running statistics, so batch normalisation is written out. A layer's operation is a
pure function of its parameters, its inputs and the key of its dropout.

Layouts: images (samples, height, width, channels), features (samples, features), tokens (samples, positions, width) or
as whole numbers (samples, positions), weights HWIO and (in, out), tables (vocabulary, width).
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from stagebench.adapters.jax import kernels
from stagebench.adapters.jax.machine import Choices, wide
from stagebench.workloads.graph import Layer

Array = Any  # jax.Array
Inputs = List[Array]
Roles = Dict[str, Array]  # a layer's parameters by role
Key = Any  # a key of jax.random
# batch_norm returns its batch's mean and unbiased variance, too
Operation = Callable[[Roles, Inputs, Key], Any]
Pads = Sequence[Tuple[int, int]]  # before and after, by axis


def lower(layer: Layer, choices: Choices) -> Operation:
    """Return the layer as a pure function."""
    operation: Operation = getattr(Lowering(layer, choices), layer.kind)
    return operation


def lower_inference(layer: Layer) -> Callable[[Roles, Array, List[Array]], Array]:
    """Return a layer that differs in inference as a function of its parameters, input and running statistics."""
    operation: Callable[..., Array] = getattr(Inference(layer), layer.kind)
    return operation


class Inference:
    """A layer in inference; the method that bears its kind's name computes it."""

    def __init__(self, layer: Layer) -> None:
        self._attrs = layer.attrs

    def dropout(self, own: Roles, x: Array, running: List[Array]) -> Array:
        return x

    def batch_norm(self, own: Roles, x: Array, running: List[Array]) -> Array:
        mean, variance = running
        y = (x - mean) * (lax.rsqrt(variance + self._attrs["eps"]) * own["weight"]) + own["bias"]
        return y.astype(x.dtype)


class Lowering:
    """A layer in training; the method that bears its kind's name is the operation."""

    def __init__(self, layer: Layer, choices: Choices) -> None:
        self._layer = layer
        self._attrs = layer.attrs
        self._choices = choices
        self._arithmetic = choices.arithmetic

    def conv(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        convolve = kernels.convolution if self._choices.for_cpus else kernels.plain
        attrs = self._attrs
        cast = self._arithmetic.cast
        x = cast(inputs[0])
        w = cast(own["weight"])
        y = convolve(x, w, attrs["stride"], attrs["pad"], self._arithmetic.exactness, attrs["groups"])
        return y + cast(own["bias"]) if attrs["bias"] else y

    def dense(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        cast = self._arithmetic.cast
        y = jnp.matmul(cast(inputs[0]), cast(own["weight"]), precision=self._arithmetic.exactness)
        return y + cast(own["bias"]) if self._attrs["bias"] else y

    qkv = dense

    def tied(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        cast, weight = self._arithmetic.cast, own["weight"]
        weight = weight.T if self._layer.shares_table else weight
        return jnp.matmul(cast(inputs[0]), cast(weight), precision=self._arithmetic.exactness)

    def relu(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return jax.nn.relu(inputs[0])

    def max_pool(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Pad with -inf, which never wins."""
        if self._choices.compared:
            return kernels.max_pool(inputs[0], self._attrs["kernel"], self._attrs["stride"], self._pads())
        return self._windows(inputs[0], -jnp.inf, lax.max, self._pads())

    def avg_pool(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Sum over windows, and divide by the number of cells that the graph counts."""
        pad = self._attrs["pad"]
        # The input's cells count, with count_padding those of the padding too; those that ceil adds beyond never do.
        before = pad if self._attrs["count_padding"] else 0
        extents = []
        rest = []
        for extent, (_, after) in zip(self._layer.input_shapes[0][1:], self._pads()):
            counted = min(before, after)
            extents.append(before + extent + counted)
            rest.append((pad - before, after - counted))
        x = wide(inputs[0])
        cells = jnp.ones((1, *extents, 1), x.dtype)
        y = self._windows(x, 0.0, lax.add, self._pads()) / self._windows(cells, 0.0, lax.add, rest)
        return y.astype(inputs[0].dtype)

    def lrn(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Normalise across channels, by alpha / size. An even window reaches one channel further down."""
        size, alpha, beta, k = (self._attrs[name] for name in ("size", "alpha", "beta", "k"))
        below = size // 2
        above = (size - 1) // 2
        x = wide(inputs[0])
        if self._choices.for_cpus:
            y = x * kernels.negative_power(k + alpha / size * kernels.channel_sums(x * x, below, above), beta)
        else:
            pads = ((0, 0), (0, 0), (0, 0), (below, above))
            sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, size), (1, 1, 1, 1), pads)
            y = x / (k + alpha / size * sums) ** beta
        return y.astype(inputs[0].dtype)

    def batch_norm(self, own: Roles, inputs: Inputs, key: Key) -> Tuple[Array, Array, Array]:
        """Normalise by the biased variance."""
        x = wide(inputs[0])
        count = x.size // x.shape[-1]
        mean = jnp.mean(x, (0, 1, 2))
        centred = x - mean
        variance = jnp.mean(centred * centred, (0, 1, 2))
        y = centred * (lax.rsqrt(variance + self._attrs["eps"]) * own["weight"]) + own["bias"]
        return y.astype(inputs[0].dtype), mean, variance * (count / max(1.0, count - 1.0))

    def dropout(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Scale in training; the key is this layer's own."""
        x = inputs[0]
        if not self._attrs["rate"]:
            return x
        keep = 1.0 - self._attrs["rate"]
        return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, jnp.zeros((), x.dtype))

    def concat(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Join along the last axis: channels or features."""
        return jnp.concatenate(inputs, axis=-1)

    def add(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return sum(inputs[1:], inputs[0])

    def flatten(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Flatten in C, H, W order: transpose to channels first."""
        x = inputs[0]
        return (jnp.transpose(x, (0, 3, 1, 2)) if x.ndim == 4 else x).reshape(len(x), -1)

    def tokens(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Cut patches of (height, width, channels) into values in C, H, W order."""
        (_, height, width), patch = self._layer.input_shapes[0], self._attrs["patch"]
        cut = inputs[0].reshape(-1, height // patch, patch, width // patch, patch, inputs[0].shape[-1])
        return jnp.transpose(cut, (0, 1, 3, 5, 2, 4)).reshape(-1, *self._layer.shape)

    def embedding(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return own["weight"][inputs[0]]

    def class_token(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        x = inputs[0]
        token = jnp.broadcast_to(own["weight"].astype(x.dtype), (len(x), 1, x.shape[-1]))
        return jnp.concatenate([token, x], axis=1)

    def positions(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return inputs[0] + own["weight"][:, : inputs[0].shape[1]].astype(inputs[0].dtype)

    def layer_norm(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Normalise each token by its biased variance."""
        x = wide(inputs[0])
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred * centred, -1, keepdims=True)
        y = centred * lax.rsqrt(variance + self._attrs["eps"]) * own["weight"] + own["bias"]
        return y.astype(inputs[0].dtype)

    def attention(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        """Written out: jax.nn.dot_product_attention takes its softmax in float32, whatever it is given."""
        (positions, width), heads = self._layer.shape, self._attrs["heads"]
        exact = self._arithmetic.exactness
        q, k, v = jnp.moveaxis(inputs[0].reshape(-1, positions, 3, heads, width // heads), 2, 0)
        scores = jnp.einsum("nqhd,nkhd->nhqk", q * (width // heads) ** -0.5, k, precision=exact)
        if self._attrs["causal"]:
            scores = jnp.where(jnp.tri(positions, dtype=bool), scores, -jnp.inf)
        shares = jax.nn.softmax(wide(scores), axis=-1).astype(v.dtype)
        return jnp.einsum("nhqk,nkhd->nqhd", shares, v, precision=exact).reshape(-1, positions, width)

    def gelu(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return jax.nn.gelu(inputs[0], approximate=True)

    def select(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return inputs[0][:, self._attrs["position"]]

    def mean(self, own: Roles, inputs: Inputs, key: Key) -> Array:
        return jnp.mean(wide(inputs[0]), 1).astype(inputs[0].dtype)

    def _pads(self) -> Pads:
        """Return the padding with which exactly the graph's windows fit."""
        kernel, stride, pad = (self._attrs[name] for name in ("kernel", "stride", "pad"))
        extents = zip(self._layer.input_shapes[0][1:], self._layer.shape[1:])
        return [(pad, max(0, (count - 1) * stride + kernel - extent - pad)) for extent, count in extents]

    def _windows(self, x: Array, start: float, reducer: Callable[..., Any], around: Pads) -> Array:
        kernel = self._attrs["kernel"]
        stride = self._attrs["stride"]
        pads = ((0, 0), *around, (0, 0))
        return lax.reduce_window(x, start, reducer, (1, kernel, kernel, 1), (1, stride, stride, 1), pads)
