"""From the layer graph to the net."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from adapters.caffempi.arena import Arena
from adapters.caffempi.layers import linear
from adapters.caffempi.layers.base import Layer, SoftmaxLoss
from adapters.caffempi.layers.linear import Convolution, Dense, PointConvolution
from adapters.caffempi.layers.normalisation import BatchNormalisation, LocalResponse
from adapters.caffempi.layers.parameterless import (
    Add,
    AveragePooling,
    Concat,
    Dropout,
    Flatten,
    Identity,
    MaxPooling,
    Rectifier,
)
from adapters.caffempi.net import Net, Slot
from adapters.pytorch.candidates import knob_of, random
from suite.worker.contract import Unsupported
from workloads.graph import Graph
from workloads.graph import Layer as Node

CODE = (__file__, linear.__file__)  # the files that compute layers in their ways
KINDS = {
    "conv": Convolution,
    "dense": Dense,
    "relu": Rectifier,
    "max_pool": MaxPooling,
    "avg_pool": AveragePooling,
    "lrn": LocalResponse,
    "batch_norm": BatchNormalisation,
    "dropout": Dropout,
    "concat": Concat,
    "add": Add,
    "flatten": Flatten,
}


def lower(
    graph: Graph,
    channels_last: bool,
    world: int,
    dtype: Any = torch.float32,
    device: Any = "cpu",
    ways: Optional[Dict[str, str]] = None,
) -> Net:
    """Return the net of a graph, with parameters all zero; Unsupported names a kind that has no layer here.

    `ways`: how `adapters.pytorch.candidates.choose` has layers computed, by their names.
    """
    arena = Arena(graph, channels_last, dtype, device)
    layers = [layer_of(node, channels_last, (ways or {}).get(node.name, "torch")) for node in graph.layers]
    blobs = {"input": 0}
    blobs.update((node.name, index + 1) for index, node in enumerate(graph.layers))
    inputs = [tuple(blobs[name] for name in node.inputs) for node in graph.layers]
    heads = [blobs[head.layer] for head in graph.heads]
    for node, layer in zip(graph.layers, layers):
        if node.parameters:
            layer.bind(arena.of(arena.parameters, node), arena.of(arena.gradients, node))
    choose_gradients(layers, inputs)
    choose_inplace(layers, inputs, heads)
    slots = [Slot(layer, read, last) for layer, read, last in zip(layers, inputs, last_reads(inputs))]
    losses = [(blobs[head.layer], SoftmaxLoss(head.layer, head.weight, world)) for head in graph.heads]
    return Net(slots, losses, arena)


def layer_of(node: Node, channels_last: bool, way: str) -> Layer:
    if node.kind not in KINDS:
        raise Unsupported("caffempi has no layer for %r of kind %r" % (node.name, node.kind))
    if knob_of(node) == "pointwise" and (way == "product" or (way == "torch" and channels_last)):
        return PointConvolution(node, way)
    if node.kind in ("conv", "dense"):
        return KINDS[node.kind](node, way)  # type: ignore[call-arg]
    if node.kind == "dropout" and node.attrs["rate"] == 0:
        return Identity(node)
    return KINDS[node.kind](node)  # type: ignore[abstract]


def choose_gradients(layers: List[Layer], inputs: List[Tuple[int, ...]]) -> None:
    """An input's gradient is wanted where a parameter lies before it."""
    needed = [False]
    for layer, read in zip(layers, inputs):
        layer.wants = tuple(needed[blob] for blob in read)
        needed.append(any(layer.wants) or bool(layer.node.parameters))


def choose_inplace(layers: List[Layer], inputs: List[Tuple[int, ...]], heads: List[int]) -> None:
    """A rectifier overwrites its input where it is the only reader, through views as well.

    That is safe because no layer here needs its own output in backward, but for the
    rectifier, whose output another rectifier does not change.
    """
    readers: Dict[int, int] = {0: 2}  # the input belongs to the caller
    for read in inputs + [(head,) for head in heads]:
        for blob in read:
            readers[blob] = readers.get(blob, 0) + 1
    alone = [False]
    for index, (layer, read) in enumerate(zip(layers, inputs)):
        if isinstance(layer, Rectifier):
            layer.inplace = alone[read[0]]
        own_memory = not layer.aliases or alone[read[0]]
        alone.append(own_memory and readers.get(index + 1, 0) == 1)


def last_reads(inputs: List[Tuple[int, ...]]) -> List[Tuple[int, ...]]:
    """For each layer the blobs that no later layer reads."""
    last: Dict[int, int] = {}
    for index, read in enumerate(inputs):
        for blob in read:
            last[blob] = index
    return [tuple(sorted(b for b in set(read) if last[b] == index)) for index, read in enumerate(inputs)]


def attempt(channels_last: bool, node: Node, way: str, samples: int) -> Callable[[], Sequence[Any]]:
    """Return what computes a layer forward and backward on random numbers, for `candidates.choose`."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    layer, parameters = layer_of(node, channels_last, way), {}
    for seed, parameter in enumerate(node.parameters):
        parameters[parameter.name.rpartition(".")[2]] = random(parameter.shape, seed, layout)
    gradients = {role: torch.zeros_like(tensor) for role, tensor in parameters.items()}
    layer.bind(parameters, gradients)
    x = random((samples, *node.input_shapes[0]), 2, layout)
    dy = random((samples, *node.shape), 3, layout)

    @torch.inference_mode()
    def run() -> Sequence[Any]:
        return [layer.forward([x]), *layer.backward(dy, owned=False), *gradients.values()]

    return run
