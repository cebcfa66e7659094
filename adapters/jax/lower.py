"""Layer kinds as JAX's own operations, channels last.

JAX's conventions that matter: `relu` has gradient 0 at 0 where `maximum` has a half; windows are padded explicitly,
one number per side; JAX keeps no running statistics, so batch normalisation is written out. A layer's operation is a
pure function of its parameters, its inputs and the key of its dropout.

Layouts: images (samples, height, width, channels), features (samples, features), weights HWIO and (in, out).
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from adapters.jax import kernels
from adapters.jax.precision import Choices, wide
from workloads.graph import Layer

Array = Any  # jax.Array
Roles = Dict[str, Array]  # a layer's parameters by role
# (parameters, inputs, key) -> output; batch_norm returns its batch's mean and unbiased variance, too
Operation = Callable[[Roles, List[Array], Any], Any]


def lower(layer: Layer, choices: Choices) -> Operation:
    """Return the layer as a pure function."""
    made: Operation = getattr(Lowering(layer, choices), layer.kind)()
    return made


def lower_inference(layer: Layer) -> Callable[[Roles, Array, List[Array]], Array]:
    """Return a layer that differs in inference as a function of its parameters, input and running statistics."""
    made: Callable[..., Any] = getattr(Inference(layer), layer.kind)
    return made


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
    """A layer in training; the method that bears its kind's name makes the operation."""

    def __init__(self, layer: Layer, choices: Choices) -> None:
        self._layer, self._attrs, self._choices = layer, layer.attrs, choices

    def conv(self) -> Operation:
        attrs, convolve = self._attrs, kernels.convolution if self._choices.for_cpus else kernels.plain
        cast, exactness = self._choices.arithmetic.cast, self._choices.arithmetic.exactness

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            x, w = cast(inputs[0]), cast(own["weight"])
            y = convolve(x, w, attrs["stride"], attrs["pad"], exactness, attrs["groups"])
            return y + cast(own["bias"]) if attrs["bias"] else y

        return apply

    def dense(self) -> Operation:
        biased, cast, exactness = self._attrs["bias"], self._choices.arithmetic.cast, self._choices.arithmetic.exactness

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            y = jnp.matmul(cast(inputs[0]), cast(own["weight"]), precision=exactness)
            return y + cast(own["bias"]) if biased else y

        return apply

    def relu(self) -> Operation:
        return lambda own, inputs, key: jax.nn.relu(inputs[0])

    def max_pool(self) -> Operation:
        """Pad with -inf, which never wins."""
        kernel, stride, around = self._attrs["kernel"], self._attrs["stride"], self._pads()
        if self._choices.compared:
            return lambda own, inputs, key: kernels.max_pool(inputs[0], kernel, stride, around)
        return lambda own, inputs, key: self._windows(inputs[0], -jnp.inf, lax.max, around)

    def avg_pool(self) -> Operation:
        """Sum over windows, and divide by the number of cells that the graph counts."""
        pad, around = self._attrs["pad"], self._pads()
        # The input's cells count, with count_padding those of the padding too; those that ceil adds beyond never do.
        before = pad if self._attrs["count_padding"] else 0
        counted = [min(before, after) for _, after in around]
        extents = [extent + before + own for extent, own in zip(self._layer.input_shapes[0][1:], counted)]
        rest = [(pad - before, after - own) for (_, after), own in zip(around, counted)]

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            x = wide(inputs[0])
            cells = jnp.ones((1, *extents, 1), x.dtype)
            y = self._windows(x, 0.0, lax.add, around) / self._windows(cells, 0.0, lax.add, rest)
            return y.astype(inputs[0].dtype)

        return apply

    def lrn(self) -> Operation:
        """Across channels, by alpha / size. An even window reaches one channel further down."""
        size, alpha, beta, k = (self._attrs[name] for name in ("size", "alpha", "beta", "k"))
        reach, for_cpus = (size // 2, (size - 1) // 2), self._choices.for_cpus

        def normalise(x: Any) -> Any:
            if for_cpus:
                return x * kernels.negative_power(k + alpha / size * kernels.channel_sums(x * x, *reach), beta)
            pads = ((0, 0), (0, 0), (0, 0), reach)
            sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, size), (1, 1, 1, 1), pads)
            return x / (k + alpha / size * sums) ** beta

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            return normalise(wide(inputs[0])).astype(inputs[0].dtype)

        return apply

    def batch_norm(self) -> Operation:
        """Normalise by the biased variance; the operation returns (output, mean, unbiased variance)."""
        epsilon = self._attrs["eps"]

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            x = wide(inputs[0])
            count = x.size // x.shape[-1]
            mean = jnp.mean(x, (0, 1, 2))
            centred = x - mean
            variance = jnp.mean(centred * centred, (0, 1, 2))
            y = centred * (lax.rsqrt(variance + epsilon) * own["weight"]) + own["bias"]
            return y.astype(inputs[0].dtype), mean, variance * (count / max(1.0, count - 1.0))

        return apply

    def dropout(self) -> Operation:
        """Scale in training; the key is this layer's own."""
        keep = 1.0 - self._attrs["rate"]

        def apply(own: Roles, inputs: List[Array], key: Any) -> Any:
            mask = jax.random.bernoulli(key, keep, inputs[0].shape)
            return jnp.where(mask, inputs[0] / keep, jnp.zeros((), inputs[0].dtype))

        return apply if self._attrs["rate"] else lambda own, inputs, key: inputs[0]

    def concat(self) -> Operation:
        """Join along the last axis: channels or features."""
        return lambda own, inputs, key: jnp.concatenate(inputs, axis=-1)

    def add(self) -> Operation:
        return lambda own, inputs, key: sum(inputs[1:], inputs[0])

    def flatten(self) -> Operation:
        """Flatten in C, H, W order: transpose to channels first."""
        if len(self._layer.input_shapes[0]) == 1:
            return lambda own, inputs, key: inputs[0]
        return lambda own, inputs, key: jnp.transpose(inputs[0], (0, 3, 1, 2)).reshape(len(inputs[0]), -1)

    def _pads(self) -> List[Tuple[int, int]]:
        """Return (before, after) of both axes, such that exactly the graph's windows fit."""
        kernel, stride, pad = (self._attrs[name] for name in ("kernel", "stride", "pad"))
        extents = zip(self._layer.input_shapes[0][1:], self._layer.shape[1:])
        return [(pad, max(0, (count - 1) * stride + kernel - extent - pad)) for extent, count in extents]

    def _windows(self, x: Array, start: float, reducer: Any, around: Sequence[Tuple[int, int]]) -> Array:
        kernel, stride = self._attrs["kernel"], self._attrs["stride"]
        pads = ((0, 0), *around, (0, 0))
        return lax.reduce_window(x, start, reducer, (1, kernel, kernel, 1), (1, stride, stride, 1), pads)
