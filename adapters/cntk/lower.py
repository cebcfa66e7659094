"""Layer kinds as CNTK's operations, and the tensors that they make.

CNTK's conventions that matter: LRN takes the graph's alpha, it divides by the size itself, and its window is
2 * radius + 1; automatic padding of an odd kernel is (k - 1) / 2 on both sides, that of an even one is not; the running
variance is the unbiased one, and its momentum is given as a time constant in samples; the first batch would replace the
running statistics, were no batch counted before. A dense layer's weight is kept as (in, out): CNTK's backward through a
transposition takes twenty times as long.

Shapes are without the batch: images (channels, height, width), tokens (positions, width), their numbers (positions,),
weights OIHW and (in, out).
"""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Layer

Operand = Any  # cntk.Variable or cntk.Function
Attributes = Dict[str, Any]

SEEN = 1e6  # samples that count as seen before the first batch


class Held(NamedTuple):
    """A CNTK tensor, and how it differs from the canonical one."""

    tensor: Any  # cntk.Parameter or cntk.Constant
    shape: Tuple[int, ...]  # canonical
    transposed: bool

    def canonical(self, values: np.ndarray) -> np.ndarray:
        """Return a copy of values in CNTK's layout, in the canonical one."""
        turned = values.T if self.transposed else values
        return np.array(turned, order="C").reshape(self.shape)


class Tensors:
    """All parameters and running statistics of a network."""

    def __init__(self, weights: Arrays, dtype: Any) -> None:
        """`weights` in canonical names and layouts; all tensors have the type `dtype`."""
        self._weights, self.dtype = weights, np.dtype(dtype)
        self.parameters: Dict[str, Held] = {}
        self.statistics: Dict[str, Held] = {}

    def parameter(self, name: str, shape: Tuple[int, ...], transposed: bool = False) -> Any:
        """Return a trainable tensor of the canonical values, reshaped, and transposed for CNTK; it is made once."""
        if name in self.parameters:
            return self.parameters[name].tensor
        canonical = self._weights[name]
        values = canonical.reshape(shape)
        init = np.ascontiguousarray(values.T if transposed else values, dtype=self.dtype)
        made = C.Parameter(init.shape, init=init, dtype=self.dtype, name=name)
        self.parameters[name] = Held(made, canonical.shape, transposed)
        return made

    def running(self, name: str, values: np.ndarray) -> Any:
        """Return a running statistic, made once: of the weights if they have it, else `values`."""
        if name in self.statistics:
            return self.statistics[name].tensor
        made = self.constant(self._weights.get(name, values), name)
        self.statistics[name] = Held(made, values.shape, False)
        return made

    def constant(self, values: Any, name: str = "") -> Any:
        """Return a constant; without the type CNTK would make it float32 even from a float64 array."""
        return C.Constant(np.array(values, dtype=self.dtype), dtype=self.dtype, name=name)

    def values(self) -> Arrays:
        everything = dict(self.parameters, **self.statistics)
        return {name: held.canonical(held.tensor.value) for name, held in everything.items()}


class Lowering:
    """Turns layers into operations, one after the other; their tensors go to `tensors`."""

    def __init__(self, tensors: Tensors, samples: int, mask_seed: Callable[[str], int], fast: bool) -> None:
        """`samples` are one batch's; `mask_seed` is by a dropout layer's name; `fast` allows faster compositions."""
        self._tensors, self._samples, self._mask_seed, self._fast = tensors, samples, mask_seed, fast
        self._number = tensors.dtype.type

    def operation(self, layer: Layer, inputs: List[Operand]) -> Operand:
        """Apply the method that bears the kind's name to the inputs."""
        return getattr(self, layer.kind)(layer, layer.attrs, *inputs)

    def conv(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        shape, bias = layer.parameters[0].shape, 0
        if attrs["bias"]:
            bias = self._tensors.parameter(f"{layer.name}.bias", (attrs["out"], 1, 1))
        if self._fast and attrs["kernel"] == 1 and attrs["groups"] == 1 and attrs["pad"] == 0:
            y = C.times(self._tensors.parameter(f"{layer.name}.weight", shape[:2]), strided(x, attrs), output_rank=2)
        else:
            centred = attrs["kernel"] == 2 * attrs["pad"] + 1  # what automatic padding does
            if attrs["pad"] and not centred:
                around = (attrs["pad"], attrs["pad"])
                x = C.pad(x, [(0, 0), around, around], mode=C.CONSTANT_PAD, constant_value=0)
            automatic = bool(attrs["pad"]) and centred
            y = C.convolution(
                self._tensors.parameter(f"{layer.name}.weight", shape),
                x,
                strides=(attrs["stride"], attrs["stride"]),
                sharing=[True],
                auto_padding=[False, automatic, automatic],
                dilation=(1,),
                groups=attrs["groups"],
            )
        return y + bias if attrs["bias"] else y

    def dense(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        out, entering = layer.parameters[0].shape
        y = C.times(x, self._tensors.parameter(f"{layer.name}.weight", (out, entering), transposed=True))
        return y + self._tensors.parameter(f"{layer.name}.bias", (out,)) if attrs["bias"] else y

    qkv = dense

    def tied(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        weight, _, transposed = self._tensors.parameters[layer.roles["weight"]]
        return C.times(x, weight if transposed else C.swapaxes(weight, 0, 1))

    def relu(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        # A comparison and a product run several times faster than CNTK's own forward.
        return x * C.greater(x, self._number(0)) if self._fast else C.relu(x)

    def max_pool(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return pooled(C.MAX_POOLING, layer, x, False)

    def avg_pool(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        if self._fast and layer.shape[1:] == (1, 1) and attrs["kernel"] == x.shape[1] == x.shape[2]:
            return C.reduce_mean(x, axis=(1, 2))
        y = pooled(C.AVG_POOLING, layer, x, attrs["count_padding"])
        if attrs["ceil"] and attrs["count_padding"]:
            # CNTK's divisor counts all of a window that reaches beyond the padding.
            y = y * self._tensors.constant(overhang(layer))
        return y

    def lrn(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        size, alpha, beta, k = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]
        if size % 2 and size <= x.shape[0] and not self._fast:  # a wider one is summed as if it had as many channels
            return C.local_response_normalization(x, size // 2, k, alpha, beta)
        # The window's sum as a product with a band matrix.
        window = np.subtract.outer(np.arange(x.shape[0]), np.arange(x.shape[0]))
        band = ((window <= size // 2) & (window >= -((size - 1) // 2))) * (alpha / size)
        sums = C.times(self._tensors.constant(band), x * x, output_rank=2)
        scale = sums + self._number(k)
        # Roots cost a fraction of a power.
        power = C.sqrt(scale * C.sqrt(scale)) if beta == 0.75 else C.exp(self._number(beta) * C.log(scale))
        return x / power

    def batch_norm(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        tensors, name, shape = self._tensors, layer.name, (x.shape[0],)
        # The new value's share is 1 - m: exp(-samples / constant) = m. Momentum 0 keeps nothing.
        constant = -self._samples / math.log(attrs["momentum"]) if attrs["momentum"] else 0
        return C.batch_normalization(
            x,
            tensors.parameter(f"{name}.weight", shape),
            tensors.parameter(f"{name}.bias", shape),
            tensors.running(f"{name}.running_mean", np.zeros(shape)),
            tensors.running(f"{name}.running_var", np.ones(shape)),
            spatial=True,
            normalization_time_constant=constant,
            blend_time_constant=0,
            epsilon=attrs["eps"],
            use_cudnn_engine=False,
            disable_regularization=False,
            running_count=tensors.constant(SEEN),
        )

    def dropout(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return C.dropout(x, attrs["rate"], seed=self._mask_seed(layer.name)) if attrs["rate"] else x

    def concat(self, layer: Layer, attrs: Attributes, *xs: Operand) -> Operand:
        return C.splice(*xs, axis=0)

    def add(self, layer: Layer, attrs: Attributes, first: Operand, *others: Operand) -> Operand:
        for other in others:
            first = first + other
        return first

    def flatten(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return C.reshape(x, layer.shape)

    def tokens(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        # Not by a convolution: one that was evaluated and then trained ends the process. In two steps: a transposition
        # takes at most five axes, the batch's included.
        (channels, height, width), patch = layer.input_shapes[0], attrs["patch"]
        rows, columns = height // patch, width // patch
        x = C.transpose(C.reshape(x, (channels, rows, patch * width)), (1, 0, 2))
        x = C.transpose(C.reshape(x, (rows, channels * patch, columns, patch)), (0, 2, 1, 3))
        return C.reshape(x, layer.shape)

    def embedding(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        vocabulary, most = attrs["vocabulary"], 2 ** (np.finfo(self._number).nmant + 1)
        if vocabulary > most:
            raise Unsupported(
                f"layer {layer.name!r} looks up {vocabulary} tokens; CNTK's inputs have the network's precision, in "
                f"which whole numbers are exact up to {most}"
            )
        return C.gather(self._tensors.parameter(f"{layer.name}.weight", (vocabulary, attrs["out"])), x)

    def class_token(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return C.splice(self._tensors.parameter(f"{layer.name}.weight", (1, x.shape[1])), x, axis=0)

    def positions(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        (table,) = layer.parameters
        return x + C.slice(self._tensors.parameter(table.name, table.shape[1:]), 0, 0, layer.shape[0])

    def layer_norm(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        # Composed: CNTK's own adds its epsilon to the deviation.
        weight, bias = (self._tensors.parameter(each.name, each.shape) for each in layer.parameters)
        centred = x - C.reduce_mean(x, axis=-1)
        deviation = C.sqrt(C.reduce_mean(centred * centred, axis=-1) + self._number(attrs["eps"]))
        return centred / deviation * weight + bias

    def attention(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        # Head by head, which is faster than CNTK's batched product.
        (positions, width), heads = layer.shape, attrs["heads"]
        size, results = width // heads, []
        after = np.triu(np.full((positions, positions), -1e30), 1) if attrs["causal"] else None
        for begin in range(0, width, size):
            q, k, v = (C.slice(x, 1, part + begin, part + begin + size) for part in (0, width, 2 * width))
            scores = C.times(q * self._number(size**-0.5), C.swapaxes(k, 0, 1))
            scores = scores if after is None else scores + self._tensors.constant(after)
            results.append(C.times(C.softmax(scores, axis=-1), v))
        return C.splice(*results, axis=-1) if len(results) > 1 else results[0]

    def gelu(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        number = self._number
        bent = C.tanh(number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x))
        return number(0.5) * x * (number(1) + bent)

    def select(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return C.reshape(C.slice(x, 0, attrs["position"], attrs["position"] + 1), layer.shape)

    def mean(self, layer: Layer, attrs: Attributes, x: Operand) -> Operand:
        return C.reshape(C.reduce_mean(x, axis=0), layer.shape)


def strided(x: Operand, attrs: Attributes) -> Operand:
    step = attrs["stride"]
    return x if step == 1 else C.slice(x, [1, 2], [0, 0], list(x.shape[1:]), [step, step])


def pooled(kind: int, layer: Layer, x: Operand, count_padding: bool) -> Operand:
    """Pool with explicit padding, which CNTK's Python layer does not offer."""
    kernel, stride, pad = (layer.attrs[name] for name in ("kernel", "stride", "pad"))
    for axis in (1, 2):
        reach = (layer.shape[axis] - 1) * stride + kernel - pad
        if pad and reach < x.shape[axis]:  # with explicit padding CNTK refuses inputs that no window covers
            x = C.slice(x, axis, 0, reach)
    twice = ((extent, extent) for extent in (kernel, stride, pad, pad))
    y = pooling(x, kind, *twice, layer.attrs["ceil"], count_padding, "")
    for axis in (1, 2):
        if y.shape[axis] > layer.shape[axis]:  # a last window beyond the input and its left padding: the graph drops it
            y = C.slice(y, axis, 0, layer.shape[axis])
    return y


@C.internal.typemap
def pooling(x: Operand, *words: Any) -> Operand:
    """Call the library's own function; the decorator makes its result one of CNTK's Python functions."""
    return C.cntk_py.pooling(C.internal.sanitize_input(x), *words)


def overhang(layer: Layer) -> np.ndarray:
    """Return the correction of an average over whole windows, (1, height, width): window / its part that counts."""
    kernel, stride, pad = (layer.attrs[name] for name in ("kernel", "stride", "pad"))
    factors = []
    for before, after in zip(layer.input_shapes[0][1:], layer.shape[1:]):
        begins = np.arange(after) * stride - pad
        factors.append(kernel / (np.minimum(begins + kernel, before + pad) - begins))
    return np.multiply.outer(*factors)[np.newaxis]
