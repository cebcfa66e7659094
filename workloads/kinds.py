"""The layer kinds: their attributes, shapes, parameters and arithmetic.

| kind | attributes | meaning |
|---|---|---|
| conv | out, kernel, stride, pad, groups, bias | cross-correlation, zero padding on both sides |
| dense | out, bias | y = W x + b over a flat input |
| relu | | max(x, 0); the gradient at 0 is 0 |
| max_pool | kernel, stride, pad, ceil | padding never wins |
| avg_pool | kernel, stride, pad, ceil, count_padding | count_padding: padded zeros count in the divisor |
| lrn | size, alpha, beta, k | x * (k + alpha/size * sum of squares over the window) ** -beta |
| batch_norm | eps, momentum | normalises by the batch's biased variance; see below |
| dropout | rate | zero with probability rate, else scale by 1/(1 - rate) |
| concat | | along channels |
| add | | element by element |
| flatten | | in C, H, W order |

Any kind with parameters may carry `init`: {"weight": {...}, "bias": {...}}.
Running statistics of batch_norm: momentum * running + (1 - momentum) * batch, with the
batch's unbiased variance (divided by n - 1).
With `ceil`, a last window that would begin beyond the input and its left padding is
dropped, as Caffe and PyTorch do.

Standard library only.
"""

from typing import Any, Dict, List, Tuple

from workloads import attributes

Shape = Tuple[int, ...]

# attribute name -> default; REQUIRED marks those without one
REQUIRED = object()
_WINDOW = {"kernel": REQUIRED, "stride": REQUIRED, "pad": 0, "ceil": False}
KINDS: Dict[str, Dict[str, Any]] = {
    "conv": {"out": REQUIRED, "kernel": REQUIRED, "stride": 1, "pad": 0, "groups": 1, "bias": True, "init": {}},
    "dense": {"out": REQUIRED, "bias": True, "init": {}},
    "relu": {},
    "max_pool": dict(_WINDOW),
    "avg_pool": dict(_WINDOW, count_padding=False),
    "lrn": {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
    "batch_norm": {"eps": 1e-5, "momentum": 0.9, "init": {}},
    "dropout": {"rate": REQUIRED},
    "concat": {},
    "add": {},
    "flatten": {},
}

JOINING = ("concat", "add")  # kinds of several inputs

_HE = {"kind": "he"}
_ZERO = {"kind": "constant", "value": 0.0}
DEFAULT_INIT = {
    ("conv", "weight"): _HE,
    ("conv", "bias"): _ZERO,
    ("dense", "weight"): _HE,
    ("dense", "bias"): _ZERO,
    ("batch_norm", "weight"): {"kind": "constant", "value": 1.0},
    ("batch_norm", "bias"): _ZERO,
}


def checked(name: str, kind: str, attrs: dict) -> dict:
    """The attributes with defaults filled in; ValueError for an unknown kind or attribute, a wrong one, or none."""
    if kind not in KINDS:
        raise ValueError("layer %r has the unknown kind %r; known: %s" % (name, kind, ", ".join(sorted(KINDS))))
    known = KINDS[kind]
    for key in attrs:
        if key not in known:
            raise ValueError(
                "layer %r (%s) has no attribute %r; known: %s" % (name, kind, key, ", ".join(sorted(known)))
            )
    full = dict(known, **attrs)
    for key, value in full.items():
        if value is REQUIRED:
            raise ValueError("layer %r (%s) needs the attribute %r" % (name, kind, key))
        wrong = attributes.problem(key, value)
        if wrong:
            raise ValueError("layer %r (%s) has %s" % (name, kind, wrong))
    return full


def pooled(extent: int, kernel: int, stride: int, pad: int, ceil: bool) -> int:
    """Output extent of a pooling window along one axis."""
    span = extent + 2 * pad - kernel
    count = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (count - 1) * stride >= extent + pad:
        count -= 1
    return count


def output_shape(kind: str, attrs: dict, inputs: List[Shape]) -> Shape:
    """Shape without the batch; ValueError when the inputs do not fit."""
    if not inputs or (len(inputs) > 1 and kind not in JOINING):
        raise ValueError("wants %s, not %d" % ("inputs" if kind in JOINING else "one input", len(inputs)))
    if kind in ("conv", "max_pool", "avg_pool", "lrn") and len(inputs[0]) != 3:
        raise ValueError("wants (channels, height, width), not %r" % (inputs[0],))
    shape = _SHAPES.get(kind, _same)(attrs, inputs)
    if any(extent < 1 for extent in shape):
        raise ValueError("input %r leaves nothing: %r" % (inputs[0], shape))
    return shape


def _same(attrs: dict, inputs: List[Shape]) -> Shape:
    return inputs[0]


def _conv(attrs: dict, inputs: List[Shape]) -> Shape:
    channels, groups = inputs[0][0], attrs["groups"]
    if channels % groups or attrs["out"] % groups:
        raise ValueError("%d groups do not divide %d -> %d channels" % (groups, channels, attrs["out"]))
    window = attrs["kernel"], attrs["stride"], attrs["pad"]
    return (attrs["out"],) + tuple(pooled(extent, *window, ceil=False) for extent in inputs[0][1:])


def _pool(attrs: dict, inputs: List[Shape]) -> Shape:
    window = attrs["kernel"], attrs["stride"], attrs["pad"], attrs["ceil"]
    return inputs[0][:1] + tuple(pooled(extent, *window) for extent in inputs[0][1:])


def _dense(attrs: dict, inputs: List[Shape]) -> Shape:
    if len(inputs[0]) != 1:
        raise ValueError("wants a flat input, not %r" % (inputs[0],))
    return (attrs["out"],)


def _concat(attrs: dict, inputs: List[Shape]) -> Shape:
    if any(shape[1:] != inputs[0][1:] for shape in inputs):
        raise ValueError("cannot join %r" % (inputs,))
    return (sum(shape[0] for shape in inputs),) + inputs[0][1:]


def _add(attrs: dict, inputs: List[Shape]) -> Shape:
    if any(shape != inputs[0] for shape in inputs):
        raise ValueError("cannot add %r" % (inputs,))
    return inputs[0]


def _flatten(attrs: dict, inputs: List[Shape]) -> Shape:
    product = 1
    for extent in inputs[0]:
        product *= extent
    return (product,)


_SHAPES = {
    "conv": _conv,
    "max_pool": _pool,
    "avg_pool": _pool,
    "dense": _dense,
    "concat": _concat,
    "add": _add,
    "flatten": _flatten,
}


def parameter_shapes(kind: str, attrs: dict, inputs: List[Shape]) -> List[Tuple[str, Shape]]:
    """(role, shape) of each trainable tensor."""
    if kind == "conv":
        weight: Shape = (attrs["out"], inputs[0][0] // attrs["groups"], attrs["kernel"], attrs["kernel"])
    elif kind == "dense":
        weight = (attrs["out"], inputs[0][0])
    elif kind == "batch_norm":
        return [("weight", (inputs[0][0],)), ("bias", (inputs[0][0],))]
    else:
        return []
    return [("weight", weight)] + ([("bias", (attrs["out"],))] if attrs["bias"] else [])  # type: ignore[list-item]


def buffer_shapes(kind: str, inputs: List[Shape]) -> List[Tuple[str, Shape]]:
    """(role, shape) of each running statistic."""
    if kind != "batch_norm":
        return []
    return [("running_mean", (inputs[0][0],)), ("running_var", (inputs[0][0],))]


def macs(kind: str, attrs: dict, inputs: List[Shape], output: Shape) -> int:
    """Multiply-accumulates of one sample's forward pass."""
    if kind == "conv":
        per_output = (inputs[0][0] // attrs["groups"]) * attrs["kernel"] ** 2
        return output[0] * output[1] * output[2] * per_output
    if kind == "dense":
        return output[0] * inputs[0][0]
    return 0
