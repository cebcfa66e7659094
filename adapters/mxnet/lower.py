"""Layer kinds as MXNet's own operators, the ones that Gluon's layers are made of.

MXNet's conventions that matter: LRN takes the graph's alpha (it divides by the size
itself); batch-norm momentum is the share of the *old* value; a pooling that rounds up is
called "full" and keeps a last window that lies in the padding alone; batch
normalisation ignores gamma unless told otherwise. Every default is passed.

`F` is `mx.sym` while a graph is traced, or `mx.nd`.

Oldest Python: 3.6.
"""

from typing import Any, Callable, Dict, List, NamedTuple

from adapters.mxnet.lrn import composed
from suite.worker.contract import Unsupported
from workloads.graph import Layer
from workloads.kinds import pooled

Choices = NamedTuple(
    "Choices",
    [
        ("lrn", str),  # "composed" or "native"
        ("tuned", bool),
        ("precision", str),
    ],
)


def lower(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803 - Gluon's name
    """The layer's output for its inputs; `params` holds every parameter and running statistic by canonical name."""
    return MAKERS[layer.kind](F, layer, inputs, params, choices)


def _conv(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    attrs = layer.attrs
    tensors = [params[parameter.name] for parameter in layer.parameters]
    return F.Convolution(
        inputs[0],
        *tensors,
        kernel=(attrs["kernel"],) * 2,
        stride=(attrs["stride"],) * 2,
        dilate=(1, 1),
        pad=(attrs["pad"],) * 2,
        num_filter=attrs["out"],
        num_group=attrs["groups"],
        no_bias=not attrs["bias"],
        layout="NCHW",
        name=layer.name,
    )


def _dense(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    tensors = [params[parameter.name] for parameter in layer.parameters]
    return F.FullyConnected(
        inputs[0],
        *tensors,
        num_hidden=layer.attrs["out"],
        no_bias=not layer.attrs["bias"],
        flatten=False,
        name=layer.name,
    )


def _batch_norm(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    roles = ("weight", "bias", "running_mean", "running_var")
    return F.BatchNorm(
        inputs[0],
        *[params["%s.%s" % (layer.name, role)] for role in roles],
        eps=layer.attrs["eps"],
        momentum=layer.attrs["momentum"],
        fix_gamma=False,
        use_global_stats=False,
        output_mean_var=False,
        axis=1,
        name=layer.name,
    )


def _relu(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    # Not F.relu: Activation is oneDNN's and keeps its blocked layouts.
    return F.Activation(inputs[0], act_type="relu", name=layer.name)


def _window(layer: Layer) -> Dict[str, Any]:
    """Kernel, stride, padding and rounding; Unsupported where MXNet's rounding up is another one."""
    attrs, wanted = layer.attrs, layer.shape[1:]
    window = attrs["kernel"], attrs["stride"], attrs["pad"]
    extents = layer.input_shapes[0][1:]
    down = tuple(pooled(extent, *window, ceil=False) for extent in extents)
    up = tuple(1 - (window[0] - 2 * window[2] - extent) // window[1] for extent in extents)
    if wanted not in (down, up):
        raise Unsupported(
            "layer %r pools %r to %r; MXNet makes %r of it when it rounds down and %r when it rounds up, along both "
            "axes alike" % (layer.name, extents, wanted, down, up)
        )
    return {
        "kernel": (attrs["kernel"],) * 2,
        "stride": (attrs["stride"],) * 2,
        "pad": (attrs["pad"],) * 2,
        "pooling_convention": "valid" if wanted == down else "full",
        "global_pool": False,
        "layout": "NCHW",
        "name": layer.name,
    }


def _max_pool(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    return F.Pooling(inputs[0], pool_type="max", **_window(layer))


def _avg_pool(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    counted = layer.attrs["count_padding"]
    return F.Pooling(inputs[0], pool_type="avg", count_include_pad=counted, **_window(layer))


def _lrn(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    attrs, channels = layer.attrs, layer.input_shapes[0][0]
    size, alpha, beta, k = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]
    if choices.lrn == "composed":
        return composed(F, inputs[0], channels, size, alpha, beta, k, choices.tuned)
    if size % 2 == 0 or choices.precision != "float32":
        raise Unsupported(
            "layer %r normalises over %d channels in %s; MXNet's own LRN wants an odd number and float32, "
            "lrn = 'composed' takes any" % (layer.name, size, choices.precision)
        )
    return F.LRN(inputs[0], nsize=size, alpha=alpha, beta=beta, knorm=k, name=layer.name)


def _dropout(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    rate = layer.attrs["rate"]
    if rate == 0:
        return inputs[0]
    return F.Dropout(inputs[0], p=rate, mode="training", axes=(), name=layer.name)


def _concat(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    return F.Concat(*inputs, dim=1, name=layer.name)


def _add(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    total = inputs[0]
    for other in inputs[1:]:
        total = F.elemwise_add(total, other)
    return total


def _flatten(F: Any, layer: Layer, inputs: List[Any], params: Dict[str, Any], choices: Choices) -> Any:  # noqa: N803
    return F.Flatten(inputs[0], name=layer.name)


MAKERS: Dict[str, Callable[[Any, Layer, List[Any], Dict[str, Any], Choices], Any]] = {
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
