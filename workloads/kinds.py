"""The layer kinds, a class each: attributes, shape, parameters, arithmetic, and the properties that adapters ask for.

Any kind with parameters may carry the attribute `init`: {"weight": {...}, "bias": {...}}. A new kind is a class here,
or in `stagebench.workloads.token_kinds`, and its computation in each adapter (`lower.py`); no other file lists the
kinds.

Standard library only.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Tuple, Type

# Without the batch: (channels, height, width), (features,), tokens (positions, width) or their numbers (positions,).
Shape = Tuple[int, ...]

MAX_SIZE = 10**15  # numbers of a tensor: sums over a network stay exact
Values = Dict[str, Any]  # by attribute, or of an initialiser
HE: Values = {"kind": "he"}
ZERO: Values = {"kind": "constant", "value": 0.0}
ONE: Values = {"kind": "constant", "value": 1.0}


class Parameter(NamedTuple):
    """A trainable tensor."""

    name: str  # "conv1.weight": layer, dot, role
    shape: Shape  # OIHW for convolutions, (out, in) for dense layers
    init: dict  # {"kind": "gaussian", "std": 0.01}, see stagebench.workloads.weights
    parts: int = 1  # of the first axis, of equal extent: a proof judges each


# The values that a layer's attributes may have: a network may come from any user's file.
MAX_COUNT = 10**9
INITIALISERS = {"constant": "value", "uniform": "bound", "gaussian": "std", "xavier": "", "he": "", "he_fan_out": ""}
REQUIRED = object()  # the default of an attribute without one


def whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_COUNT


def number(value: Any) -> bool:
    """Check for a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e30


class Attribute(NamedTuple):
    """The values that an attribute may have."""

    fits: Callable[[Any], bool]
    wanted: str  # in words
    default: Any


def count(default: Any = REQUIRED) -> Attribute:
    return Attribute(whole, "a whole number from 1", default)


def padding() -> Attribute:
    return Attribute(lambda value: whole(value, 0), "a whole number from 0", 0)


def name_of_layer() -> Attribute:
    return Attribute(lambda value: isinstance(value, str), "the name of an earlier layer", REQUIRED)


def flag(default: bool) -> Attribute:
    return Attribute(lambda value: isinstance(value, bool), "true or false", default)


def real(default: float) -> Attribute:
    return Attribute(number, "a number", default)


def positive(default: float) -> Attribute:
    return Attribute(lambda value: number(value) and value > 0, "a number above 0", default)


def share(default: Any = REQUIRED) -> Attribute:
    return Attribute(lambda value: number(value) and 0 <= value < 1, "a number from 0 to less than 1", default)


def init() -> Attribute:
    """Return the attribute `init`: {role: {"kind": one of INITIALISERS, and the value that it takes}}."""

    def fits(value: Any) -> bool:
        kind = value.get("kind") if isinstance(value, dict) else None
        takes = INITIALISERS.get(kind) if isinstance(kind, str) else None
        if takes is None:
            return False
        return set(value) == {"kind", takes or "kind"} and (not takes or number(value[takes]))

    return Attribute(
        lambda value: isinstance(value, dict) and all(map(fits, value.values())),
        f"an initialiser for each role: {{'kind': one of {', '.join(sorted(INITIALISERS))}}}",
        {},
    )


class Layer:
    """A node of a graph: its inputs by name, its attributes, and what follows from them.

    A subclass is a kind. Its docstring says what a layer of that kind computes, its class attributes what is true of
    every such layer.
    """

    kind = ""  # its name in graphs
    attributes: Dict[str, Attribute] = {}
    initialisers: Dict[str, Values] = {}  # of its parameters, by role: the default
    statistics: Tuple[str, ...] = ()  # roles of running statistics, a number per channel each
    several_inputs = False
    takes_images = False  # its input is (channels, height, width)
    takes_tokens = False  # its input may be (positions, width)
    shares_table = False  # the weight that it shares is that of a kind that takes numbers
    takes_numbers = False  # its input is the network's: whole numbers below its attribute `vocabulary`
    parts = 1  # of each parameter, see `Parameter`
    has_weights = False  # it counts where a network is named by its depth
    differs_in_inference = False
    draws_random = False  # in training
    deterministic: Values = {}  # the attribute values with which a random kind draws nothing
    mixes_samples = False  # in training, a sample's output depends on the whole batch
    elementwise = False  # each output comes from one input in the same place: any layout will do
    overwritable = False  # no backward reads its output, so the next layer may write over it
    linear = False  # its backward reads no input
    is_view = False  # its output is its input's memory

    def __init_subclass__(cls, kind: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind:
            cls.kind, KINDS[kind] = kind, cls

    def __init__(self, name: str, inputs: Tuple[str, ...], attrs: Values, input_shapes: List[Shape]) -> None:
        """Check the attributes, infer shapes; ValueError names the layer and what is wrong."""
        self.name, self.inputs, self.input_shapes = name, tuple(inputs), list(input_shapes)
        self.attrs = self._checked(attrs)
        try:
            self.shape = self._inferred()
        except ValueError as error:
            raise ValueError(f"layer {name!r} ({self.kind}): {error}")
        roles = self.parameter_shapes()
        if max(size(shape) for shape in (self.shape, *roles.values())) > MAX_SIZE:
            raise ValueError(f"layer {name!r} ({self.kind}): a tensor of it has more than {MAX_SIZE} numbers")
        inits = dict(self.initialisers, **self.attrs.get("init", {}))
        self.parameters = [Parameter(f"{name}.{role}", shape, inits[role], self.parts) for role, shape in roles.items()]
        self.buffers = [(f"{name}.{role}", self.input_shapes[0][:1]) for role in self.statistics]

    # --- what a kind may override -------------------------------------------

    def output_shape(self) -> Shape:
        """Return the shape without the batch; ValueError when the inputs do not fit."""
        return self.input_shapes[0]

    def parameter_shapes(self) -> Dict[str, Shape]:
        """Return the shape of each trainable tensor by its role, in order."""
        return {}

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample's forward pass, of convolutions and matrix products."""
        return 0

    @property
    def sharpened(self) -> float:
        """The factor of its weight in a proof."""
        return 1.0

    @property
    def shares(self) -> Dict[str, str]:
        """Parameters of earlier layers that it computes with, too: their canonical names by its own roles."""
        return {}

    # --- what follows --------------------------------------------------------

    @property
    def roles(self) -> Dict[str, str]:
        """The canonical names of all parameters that it computes with, its own and shared ones, by its roles."""
        own = {parameter.name[len(self.name) + 1 :]: parameter.name for parameter in self.parameters}
        return dict(own, **self.shares)

    @property
    def parameter_count(self) -> int:
        """Trainable numbers."""
        return sum(size(parameter.shape) for parameter in self.parameters)

    def gradient_bytes(self, itemsize: int = 4) -> int:
        """Return the bytes that this layer adds to a gradient exchange."""
        return self.parameter_count * itemsize

    def _checked(self, attrs: Values) -> Values:
        for key in attrs:
            if key not in self.attributes:
                known = ", ".join(sorted(self.attributes))
                raise ValueError(f"layer {self.name!r} ({self.kind}) has no attribute {key!r}; known: {known}")
        full = {}
        for key, attribute in self.attributes.items():
            value = full[key] = attrs.get(key, attribute.default)
            if value is REQUIRED:
                raise ValueError(f"layer {self.name!r} ({self.kind}) needs the attribute {key!r}")
            if not attribute.fits(value):
                raise ValueError(
                    f"layer {self.name!r} ({self.kind}) has {key} = {repr(value)[:80]}; it wants {attribute.wanted}"
                )
        return full

    def _inferred(self) -> Shape:
        shapes = self.input_shapes
        if not shapes or (len(shapes) > 1 and not self.several_inputs):
            wanted = "inputs" if self.several_inputs else "one input"
            raise ValueError(f"wants {wanted}, not {len(shapes)}")
        if self.takes_images and len(shapes[0]) != 3:
            raise ValueError(f"wants (channels, height, width), not {shapes[0]!r}")
        if self.takes_numbers and self.inputs != ("input",):
            raise ValueError(f"looks up the network's own input, not {self.inputs[0]!r}")
        if len(shapes[0]) == 2 and not self.takes_tokens:
            raise ValueError(f"takes no tokens, which {shapes[0]!r} are")
        shape = self.output_shape()
        if any(extent < 1 for extent in shape):
            raise ValueError(f"input {shapes[0]!r} leaves nothing: {shape!r}")
        return shape


KINDS: Dict[str, Type[Layer]] = {}


def layer(name: str, kind: str, inputs: Tuple[str, ...], attrs: Values, input_shapes: List[Shape]) -> Layer:
    """Make a layer of the kind of that name; ValueError for an unknown kind, or for what the kind refuses."""
    if kind not in KINDS:
        raise ValueError(f"layer {name!r} has the unknown kind {kind!r}; known: {', '.join(sorted(KINDS))}")
    return KINDS[kind](name, inputs, attrs, input_shapes)


class Conv(Layer, kind="conv"):
    """Cross-correlation, zero padding on both sides."""

    attributes = {
        "out": count(),
        "kernel": count(),
        "stride": count(1),
        "pad": padding(),
        "groups": count(1),
        "bias": flag(True),
        "init": init(),
    }
    initialisers = {"weight": HE, "bias": ZERO}
    takes_images = has_weights = overwritable = True

    def output_shape(self) -> Shape:
        attrs, (channels, *extents) = self.attrs, self.input_shapes[0]
        if channels % attrs["groups"] or attrs["out"] % attrs["groups"]:
            raise ValueError(f"{attrs['groups']} groups do not divide {channels} -> {attrs['out']} channels")
        window = attrs["kernel"], attrs["stride"], attrs["pad"]
        return (attrs["out"], *(pooled(extent, *window, ceil=False) for extent in extents))

    def parameter_shapes(self) -> Dict[str, Shape]:
        attrs = self.attrs
        kernel = (attrs["out"], self.input_shapes[0][0] // attrs["groups"], attrs["kernel"], attrs["kernel"])
        return weight_and_bias(kernel, attrs["bias"])

    @property
    def macs(self) -> int:
        return size(self.shape) * (self.input_shapes[0][0] // self.attrs["groups"]) * self.attrs["kernel"] ** 2


class Dense(Layer, kind="dense"):
    """y = W x + b over a flat input, or over each token."""

    attributes = {"out": count(), "bias": flag(True), "init": init()}
    initialisers = {"weight": HE, "bias": ZERO}
    has_weights = overwritable = takes_tokens = True

    def output_shape(self) -> Shape:
        if len(self.input_shapes[0]) > 2:
            raise ValueError(f"wants a flat input or tokens, not {self.input_shapes[0]!r}")
        return (*self.input_shapes[0][:-1], self.attrs["out"])

    def parameter_shapes(self) -> Dict[str, Shape]:
        return weight_and_bias((self.attrs["out"], self.input_shapes[0][-1]), self.attrs["bias"])

    @property
    def macs(self) -> int:
        return size(self.shape) * self.input_shapes[0][-1]


class ReLU(Layer, kind="relu"):
    """max(x, 0); the gradient at 0 is 0."""

    elementwise = takes_tokens = True


class Pool(Layer):
    """A window that slides over rows and columns.

    With `ceil`, a last window that would begin beyond the input and its left padding is dropped, as Caffe and PyTorch
    do.
    """

    attributes = {"kernel": count(), "stride": count(), "pad": padding(), "ceil": flag(False)}
    takes_images = True

    def output_shape(self) -> Shape:
        channels, *extents = self.input_shapes[0]
        window = tuple(self.attrs[name] for name in ("kernel", "stride", "pad", "ceil"))
        return (channels, *(pooled(extent, *window) for extent in extents))


class MaxPool(Pool, kind="max_pool"):
    """The largest of each window; padding never wins."""


class AveragePool(Pool, kind="avg_pool"):
    """The mean of each window; count_padding: padded zeros count in the divisor."""

    attributes = dict(Pool.attributes, count_padding=flag(False))
    linear = True


class LocalResponseNorm(Layer, kind="lrn"):
    """x * (k + alpha/size * sum of squares over the window) ** -beta, across channels."""

    attributes = {"size": count(5), "alpha": real(1e-4), "beta": real(0.75), "k": real(1.0)}
    takes_images = True


class BatchNorm(Layer, kind="batch_norm"):
    """Normalises each channel by the batch's biased variance.

    Running statistics: momentum * running + (1 - momentum) * batch, with the batch's unbiased variance (divided by
    n - 1).
    """

    attributes = {"eps": positive(1e-5), "momentum": share(0.9), "init": init()}
    initialisers = {"weight": ONE, "bias": ZERO}
    statistics = ("running_mean", "running_var")
    differs_in_inference = mixes_samples = overwritable = True

    def parameter_shapes(self) -> Dict[str, Shape]:
        return weight_and_bias(self.input_shapes[0][:1])


class Dropout(Layer, kind="dropout"):
    """Zero with probability rate, else scale by 1/(1 - rate)."""

    attributes = {"rate": share()}
    differs_in_inference = draws_random = elementwise = takes_tokens = True
    deterministic = {"rate": 0.0}


class Concat(Layer, kind="concat"):
    """Joins its inputs along channels."""

    several_inputs = overwritable = linear = True

    def output_shape(self) -> Shape:
        first, *_ = shapes = self.input_shapes
        if any(shape[1:] != first[1:] for shape in shapes):
            raise ValueError(f"cannot join {shapes!r}")
        return (sum(shape[0] for shape in shapes),) + first[1:]


class Add(Layer, kind="add"):
    """The sum of its inputs, element by element."""

    several_inputs = overwritable = linear = takes_tokens = True

    def output_shape(self) -> Shape:
        if any(shape != self.input_shapes[0] for shape in self.input_shapes):
            raise ValueError(f"cannot add {self.input_shapes!r}")
        return self.input_shapes[0]


class Flatten(Layer, kind="flatten"):
    """(channels, height, width) to (features,), in C, H, W order; tokens one after another."""

    linear = is_view = takes_tokens = True

    def output_shape(self) -> Shape:
        return (size(self.input_shapes[0]),)


def weight_and_bias(weight: Shape, bias: bool = True) -> Dict[str, Shape]:
    """Return the shapes of a weight and of a bias with a number per output channel."""
    return {"weight": weight, "bias": weight[:1]} if bias else {"weight": weight}


def pooled(extent: int, kernel: int, stride: int, pad: int, ceil: bool) -> int:
    """Return the number of places of a window along one axis."""
    span = extent + 2 * pad - kernel
    places = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (places - 1) * stride >= extent + pad:
        places -= 1
    return places


def size(shape: Shape) -> int:
    """Return the number of elements of a shape."""
    product = 1
    for extent in shape:
        product *= extent
    return product
