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
from workloads.graph import Layer

# (own parameters by role, inputs, key) -> output; batch_norm gives its batch's mean and unbiased variance too
Operation = Callable[[Dict[str, Any], List[Any], Any], Any]


def lower(layer: Layer, tuned: bool) -> Operation:
    """The layer as a pure function; `tuned` allows what is faster on a CPU than JAX's plain operation."""
    return MAKERS[layer.kind](layer, layer.attrs, tuned)


def conv(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    convolve = fast.convolution if tuned else fast.plain

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        y = convolve(inputs[0], own["weight"], attrs["stride"], attrs["pad"], attrs["groups"])
        return y + own["bias"] if attrs["bias"] else y

    return apply


def dense(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        y = jnp.matmul(inputs[0], own["weight"], precision=lax.Precision.HIGHEST)
        return y + own["bias"] if attrs["bias"] else y

    return apply


def relu(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    return lambda own, inputs, key: jax.nn.relu(inputs[0])


def pads(layer: Layer) -> List[Tuple[int, int]]:
    """(before, after) of both axes: after the input so much that exactly the graph's windows fit."""
    attrs = layer.attrs
    found: List[Tuple[int, int]] = []
    for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:]):
        needed = (count - 1) * attrs["stride"] + attrs["kernel"] - extent - attrs["pad"]
        found.append((attrs["pad"], max(0, needed)))
    return found


def windows(x: Any, start: float, reducer: Any, layer: Layer, around: Sequence[Tuple[int, int]]) -> Any:
    """XLA's reduction over windows of both axes."""
    kernel, stride = layer.attrs["kernel"], layer.attrs["stride"]
    return lax.reduce_window(
        x, start, reducer, (1, kernel, kernel, 1), (1, stride, stride, 1), ((0, 0), *around, (0, 0))
    )


def max_pool(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Padded with what never wins."""
    around = pads(layer)
    if tuned:
        return lambda own, inputs, key: fast.max_pool(inputs[0], attrs["kernel"], attrs["stride"], around)
    return lambda own, inputs, key: windows(inputs[0], -jnp.inf, lax.max, layer, around)


def avg_pool(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Sums over windows, divided by what the graph counts: the input's own cells, or its padding's too."""
    around = pads(layer)
    # What counts: the input's own cells, or those that the graph pads too; never those that ceil adds beyond.
    counted = [min(attrs["pad"], after) if attrs["count_padding"] else 0 for _, after in around]
    before = attrs["pad"] if attrs["count_padding"] else 0
    extents = [extent + before + own for extent, own in zip(layer.input_shapes[0][1:], counted)]
    rest = [(attrs["pad"] - before, after - own) for (_, after), own in zip(around, counted)]

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        cells = jnp.ones((1, extents[0], extents[1], 1), inputs[0].dtype)
        return windows(inputs[0], 0.0, lax.add, layer, around) / windows(cells, 0.0, lax.add, layer, rest)

    return apply


def lrn(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Across channels; alpha is divided by the size here. An even window reaches one channel further down."""
    size, alpha, beta, k = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]
    reach = (size // 2, (size - 1) // 2)

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        x = inputs[0]
        if tuned:
            return x * fast.negative_power(k + alpha / size * fast.channel_sums(x * x, *reach), beta)
        sums = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, size), (1, 1, 1, 1), ((0, 0), (0, 0), (0, 0), reach))
        return x / (k + alpha / size * sums) ** beta

    return apply


def batch_norm(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Normalises by the biased variance; gives (output, mean, unbiased variance)."""

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        x = inputs[0]
        count = x.size // x.shape[-1]
        mean = jnp.mean(x, (0, 1, 2))
        centred = x - mean
        variance = jnp.mean(centred * centred, (0, 1, 2))
        y = centred * (lax.rsqrt(variance + attrs["eps"]) * own["weight"]) + own["bias"]
        return y, mean, variance * (count / max(1.0, count - 1.0))

    return apply


def dropout(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Inverted; the key is this layer's own."""
    keep = 1.0 - attrs["rate"]

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        mask = jax.random.bernoulli(key, keep, inputs[0].shape)
        return jnp.where(mask, inputs[0] / keep, jnp.zeros((), inputs[0].dtype))

    return apply if attrs["rate"] else lambda own, inputs, key: inputs[0]


def concat(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """Along the last axis: the channels, or the features."""
    return lambda own, inputs, key: jnp.concatenate(inputs, axis=-1)


def add(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    return lambda own, inputs, key: sum(inputs[1:], inputs[0])


def flatten(layer: Layer, attrs: Dict[str, Any], tuned: bool) -> Operation:
    """In C, H, W order, so back to channels first."""
    flat = len(layer.input_shapes[0]) == 1

    def apply(own: Dict[str, Any], inputs: List[Any], key: Any) -> Any:
        x = inputs[0]
        return x if flat else jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)

    return apply


MAKERS: Dict[str, Callable[[Layer, Dict[str, Any], bool], Operation]] = {
    "conv": conv,
    "dense": dense,
    "relu": relu,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "lrn": lrn,
    "batch_norm": batch_norm,
    "dropout": dropout,
    "concat": concat,
    "add": add,
    "flatten": flatten,
}
