"""Layer kinds as PyTorch's own layers.

torch's conventions that matter: LRN takes the graph's alpha (it divides by the size
itself); batch-norm momentum is the share of the *new* value, 1 - m, and its running
variance is the unbiased one; a ceil-mode window that begins beyond the input and its
left padding is dropped, as the graph says.
"""

from typing import Any, Callable, Dict, FrozenSet

import torch
from torch import nn

from adapters.pytorch.lrn import FastLRN
from suite.worker.contract import Unsupported
from workloads.graph import Graph, Layer

Operation = Callable[..., torch.Tensor]

# Kinds whose output no backward reads, so that what follows may write over it.
OVERWRITABLE = ("conv", "dense", "batch_norm", "add", "concat")


def lower(layer: Layer, fast: bool, exclusive: bool) -> Operation:
    """The layer as something to call with its inputs: an nn.Module where it has state or a mode.

    `fast` allows what is faster than torch's own layer; `exclusive` says that the first
    input may be written over.
    """
    return MAKERS[layer.kind](layer, layer.attrs, fast, exclusive)


def overwritable(graph: Graph, readers: Dict[str, int]) -> FrozenSet[str]:
    """Names of the layers whose output may be written over by their one reader."""
    heads = {head.layer for head in graph.heads}
    return frozenset(
        layer.name
        for layer in graph.layers
        if layer.kind in OVERWRITABLE and readers.get(layer.name, 0) == 1 and layer.name not in heads
    )


def _conv(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.utils.skip_init(
        nn.Conv2d,
        layer.input_shapes[0][0],
        attrs["out"],
        attrs["kernel"],
        stride=attrs["stride"],
        padding=attrs["pad"],
        groups=attrs["groups"],
        bias=attrs["bias"],
    )


def _dense(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.utils.skip_init(nn.Linear, layer.input_shapes[0][0], attrs["out"], bias=attrs["bias"])


def _batch_norm(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.BatchNorm2d(layer.input_shapes[0][0], eps=attrs["eps"], momentum=1 - attrs["momentum"])


def _relu(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return torch.relu_ if exclusive else torch.relu


def _window(layer: Layer, attrs: Dict[str, Any]) -> Dict[str, Any]:
    if 2 * attrs["pad"] > attrs["kernel"]:
        raise Unsupported(
            "layer %r pads %d for a window of %d; PyTorch pools with at most half a window of padding"
            % (layer.name, attrs["pad"], attrs["kernel"])
        )
    names = {"kernel": "kernel_size", "stride": "stride", "pad": "padding", "ceil": "ceil_mode"}
    return {theirs: attrs[ours] for ours, theirs in names.items()}


def _max_pool(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.MaxPool2d(**_window(layer, attrs))


def _avg_pool(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.AvgPool2d(count_include_pad=attrs["count_padding"], **_window(layer, attrs))


def _lrn(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    constants = attrs["size"], attrs["alpha"], attrs["beta"], attrs["k"]
    # torch gives an even window one more channel to the left; only odd ones are written out.
    return FastLRN(*constants) if fast and attrs["size"] % 2 else nn.LocalResponseNorm(*constants)


def _dropout(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return nn.Dropout(attrs["rate"]) if attrs["rate"] else nn.Identity()


def _concat(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return lambda *xs: torch.cat(xs, 1)


def _add(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    if len(layer.inputs) == 2:
        return torch.Tensor.add_ if exclusive else torch.add
    return lambda first, *rest: sum(rest, first)


def _flatten(layer: Layer, attrs: Dict[str, Any], fast: bool, exclusive: bool) -> Operation:
    return lambda x: torch.flatten(x, 1)


MAKERS: Dict[str, Callable[[Layer, Dict[str, Any], bool, bool], Operation]] = {
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
