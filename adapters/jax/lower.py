"""Layer kinds as JAX's own operations, channels last.

JAX's conventions that matter: `relu` has gradient 0 at 0 where `maximum` has a half; windows are padded explicitly,
one number a side; nothing keeps running statistics, so batch normalisation is written out. A layer's operation is a
pure function of its parameters, its running statistics, its inputs and the key of its dropout.
"""

from typing import Any, Callable, Dict, List, Sequence, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from adapters.jax import fast
from adapters.jax.precision import wide
from adapters.jax.ways import Ways
from workloads.graph import Layer

# (own parameters by role, inputs, key) -> output; batch_norm gives its batch's mean and unbiased variance too
Operation = Callable[[Dict[str, Any], List[Any], Any], Any]


def lower(layer: Layer, ways: Ways) -> Operation:
    """The layer as a pure function, computed in these ways."""
    made: Operation = getattr(Lowering(layer, ways), layer.kind)()
    return made


def lower_inference(layer: Layer) -> Callable[[Dict[str, Any], Any, List[Any]], Any]:
    """Return a layer that differs in inference as a function of its parameters, input and running statistics."""
    made: Callable[..., Any] = getattr(Inference(layer), layer.kind)
    return made


class Inference:
    """One layer in inference; the method that bears its kind's name computes it."""

    def __init__(self, layer: Layer) -> None:
        self._attrs = layer.attrs

    def dropout(self, own: Dict[str, Any], x: Any, running: List[Any]) -> Any:
        return x

    def batch_norm(self, own: Dict[str, Any], x: Any, running: List[Any]) -> Any:
        mean, variance = running
        y = (x - mean) * (lax.rsqrt(variance + self._attrs["eps"]) * own["weight"]) + own["bias"]
        return y.astype(x.dtype)


class Lowering:
    """One layer in training; the method that bears its kind's name makes the operation."""

    def __init__(self, layer: Layer, ways: Ways) -> None:
        self._layer, self._attrs, self._ways = layer, layer.attrs, ways

    def conv(self) -> Operation:
        attrs, convolve = self._attrs, fast.convolution if self._ways.for_cpus else fast.plain
        cast, exactness = self._ways.arithmetic.cast, self._ways.arithmetic.exactness

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            x, w = cast(inputs[0]), cast(own["weight"])
            y = convolve(x, w, attrs["stride"], attrs["pad"], exactness, attrs["groups"])
            return y + cast(own["bias"]) if attrs["bias"] else y

        return apply

    def dense(self) -> Operation:
        biased, cast, exactness = self._attrs["bias"], self._ways.arithmetic.cast, self._ways.arithmetic.exactness

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            y = jnp.matmul(cast(inputs[0]), cast(own["weight"]), precision=exactness)
            return y + cast(own["bias"]) if biased else y

        return apply

    def relu(self) -> Operation:
        return lambda own, inputs, key: jax.nn.relu(inputs[0])

    def max_pool(self) -> Operation:
        """Padded with what never wins."""
        kernel, stride, around = self._attrs["kernel"], self._attrs["stride"], self._pads()
        if self._ways.compared:
            return lambda own, inputs, key: fast.max_pool(inputs[0], kernel, stride, around)
        return lambda own, inputs, key: self._windows(inputs[0], -jnp.inf, lax.max, around)

    def avg_pool(self) -> Operation:
        """Sums over windows, divided by what the graph counts: the input's own cells, or its padding's too."""
        pad, around = self._attrs["pad"], self._pads()
        # What counts: the input's own cells, or those that the graph pads too; never those that ceil adds beyond.
        before = pad if self._attrs["count_padding"] else 0
        counted = [min(before, after) for _, after in around]
        extents = [extent + before + own for extent, own in zip(self._layer.input_shapes[0][1:], counted)]
        rest = [(pad - before, after - own) for (_, after), own in zip(around, counted)]

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            x = wide(inputs[0])
            cells = jnp.ones((1, *extents, 1), x.dtype)
            y = self._windows(x, 0.0, lax.add, around) / self._windows(cells, 0.0, lax.add, rest)
            return y.astype(inputs[0].dtype)

        return apply

    def lrn(self) -> Operation:
        """Across channels; alpha is divided by the size here. An even window reaches one channel further down."""
        size, alpha, beta, k = (self._attrs[name] for name in ("size", "alpha", "beta", "k"))
        reach, for_cpus = (size // 2, (size - 1) // 2), self._ways.for_cpus

        def normalise(x: Any) -> Any:
            if for_cpus:
                return x * fast.negative_power(k + alpha / size * fast.channel_sums(x * x, *reach), beta)
            pads = ((0, 0), (0, 0), (0, 0), reach)
            sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, size), (1, 1, 1, 1), pads)
            return x / (k + alpha / size * sums) ** beta

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            return normalise(wide(inputs[0])).astype(inputs[0].dtype)

        return apply

    def batch_norm(self) -> Operation:
        """Normalises by the biased variance; gives (output, mean, unbiased variance)."""
        epsilon = self._attrs["eps"]

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            x = wide(inputs[0])
            count = x.size // x.shape[-1]
            mean = jnp.mean(x, (0, 1, 2))
            centred = x - mean
            variance = jnp.mean(centred * centred, (0, 1, 2))
            y = centred * (lax.rsqrt(variance + epsilon) * own["weight"]) + own["bias"]
            return y.astype(inputs[0].dtype), mean, variance * (count / max(1.0, count - 1.0))

        return apply

    def dropout(self) -> Operation:
        """Inverted; the key is this layer's own."""
        keep = 1.0 - self._attrs["rate"]

        def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
            mask = jax.random.bernoulli(key, keep, inputs[0].shape)
            return jnp.where(mask, inputs[0] / keep, jnp.zeros((), inputs[0].dtype))

        return apply if self._attrs["rate"] else lambda own, inputs, key: inputs[0]

    def concat(self) -> Operation:
        """Along the last axis: the channels, or the features."""
        return lambda own, inputs, key: jnp.concatenate(inputs, axis=-1)

    def add(self) -> Operation:
        return lambda own, inputs, key: sum(inputs[1:], inputs[0])

    def flatten(self) -> Operation:
        """In C, H, W order, so back to channels first."""
        if len(self._layer.input_shapes[0]) == 1:
            return lambda own, inputs, key: inputs[0]
        return lambda own, inputs, key: jnp.transpose(inputs[0], (0, 3, 1, 2)).reshape(len(inputs[0]), -1)

    def _pads(self) -> List[Tuple[int, int]]:
        """(before, after) of both axes: after the input so much that exactly the graph's windows fit."""
        kernel, stride, pad = (self._attrs[name] for name in ("kernel", "stride", "pad"))
        extents = zip(self._layer.input_shapes[0][1:], self._layer.shape[1:])
        return [(pad, max(0, (count - 1) * stride + kernel - extent - pad)) for extent, count in extents]

    def _windows(self, x: Any, start: float, reducer: Any, around: Sequence[Tuple[int, int]]) -> Any:
        kernel, stride = self._attrs["kernel"], self._attrs["stride"]
        pads = ((0, 0), *around, (0, 0))
        return lax.reduce_window(x, start, reducer, (1, kernel, kernel, 1), (1, stride, stride, 1), pads)
