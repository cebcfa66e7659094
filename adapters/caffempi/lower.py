"""From the layer graph to the net."""

from collections import Counter
from typing import Any, Dict, List, Optional

import torch

from stagebench.adapters.caffempi.layers import weighted
from stagebench.adapters.caffempi.layers.base import Layer, SoftmaxLoss
from stagebench.adapters.caffempi.layers.parameterless import (
    Add,
    AveragePooling,
    Concat,
    Dropout,
    Flatten,
    Identity,
    LocalResponse,
    MaxPooling,
    Rectifier,
)
from stagebench.adapters.caffempi.layers.tokens import (
    GELU,
    Attention,
    ClassToken,
    Embedding,
    LayerNorm,
    Mean,
    Positions,
    Select,
    Tokens,
)
from stagebench.adapters.caffempi.layers.weighted import BatchNormalisation, Convolution, Dense, PointConvolution
from stagebench.adapters.caffempi.net import Arena, Net, Slot
from stagebench.adapters.pytorch.candidates import Run, Ways, knob_of, random
from stagebench.suite.worker.contract import Unsupported
from stagebench.workloads.graph import Graph
from stagebench.workloads.graph import Layer as Node

CODE = (__file__, weighted.__file__)  # the files that compute layers in their ways
KINDS: Dict[str, Any] = {
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
    "tokens": Tokens,
    "class_token": ClassToken,
    "positions": Positions,
    "layer_norm": LayerNorm,
    "qkv": Dense,
    "attention": Attention,
    "gelu": GELU,
    "select": Select,
    "mean": Mean,
    "embedding": Embedding,
    "tied": Dense,
}


def lower(
    graph: Graph,
    channels_last: bool,
    world: int,
    dtype: torch.dtype = torch.float32,
    device: Any = "cpu",
    ways: Optional[Ways] = None,
    trains: bool = True,
) -> Net:
    """Return the net of a graph, with parameters all zero; Unsupported names a kind that has no layer here.

    One that never trains has no memory for gradients.
    """
    arena = Arena(graph, channels_last, dtype, device, trains)
    blobs = {"input": 0}
    blobs.update((node.name, index + 1) for index, node in enumerate(graph.layers))
    inputs = [tuple(blobs[name] for name in node.inputs) for node in graph.layers]
    heads = [blobs[head.layer] for head in graph.heads]
    last = {blob: index for index, read in enumerate(inputs) for blob in read}  # by blob its last reader
    readers = Counter(blob for read in [*inputs, heads] for blob in read)
    needed = [False]  # by blob whether its gradient is wanted: a parameter lies before it
    # By blob whether it has one reader, also through views. The input belongs to the caller.
    alone = [False]
    slots: List[Slot] = []
    for index, (node, read) in enumerate(zip(graph.layers, inputs)):
        layer = layer_of(node, channels_last, (ways or {}).get(node.name, "torch"))
        gradients = arena.of(arena.gradients, node)
        for role, name in node.shares.items():
            # The owner's backward comes later and overwrites: until then, this layer's part lies apart.
            part = torch.zeros_like(gradients[role])
            slots[blobs[name.rpartition(".")[0]] - 1].parts.append((gradients[role], part))
            gradients[role] = part
        layer.bind(arena.of(arena.parameters, node), gradients)
        layer.wants = tuple(needed[blob] for blob in read)
        needed.append(any(layer.wants) or bool(node.roles))
        # Overwriting is safe because no layer here needs its own output in backward, but for the rectifier, whose
        # output another rectifier does not change, and attention: its gradient is 0 where a rectifier changed it.
        if isinstance(layer, Rectifier):
            layer.inplace = alone[read[0]]
        alone.append((not layer.aliases or alone[read[0]]) and readers[index + 1] == 1)
        slots.append(Slot(layer, read, tuple(sorted(blob for blob in set(read) if last[blob] == index)), []))
    losses = [(blobs[head.layer], SoftmaxLoss(head.layer, head.weight, world)) for head in graph.heads]
    return Net(slots, losses, arena)


def layer_of(node: Node, channels_last: bool, way: str) -> Layer:
    if node.kind not in KINDS:
        raise Unsupported(f"caffempi has no layer for {node.name!r} of kind {node.kind!r}")
    if knob_of(node) == "pointwise" and (way == "product" or (way == "torch" and channels_last)):
        return PointConvolution(node, way)
    if node.kind == "dropout" and node.attrs["rate"] == 0:
        return Identity(node)
    kind = KINDS[node.kind]
    return kind(node, way) if knob_of(node) or node.kind == "conv" else kind(node)  # type: ignore[no-any-return]


def attempt(channels_last: bool, node: Node, way: str, samples: int) -> Run:
    """Return what computes a layer forward and backward on random numbers, for `candidates.choose`."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    parameters = {}
    for seed, parameter in enumerate(node.parameters):
        parameters[parameter.name.rpartition(".")[2]] = random(parameter.shape, seed, layout)
    gradients = {role: torch.zeros_like(tensor) for role, tensor in parameters.items()}
    layer = layer_of(node, channels_last, way)
    layer.bind(parameters, gradients)
    x = random((samples, *node.input_shapes[0]), 2, layout)
    dy = random((samples, *node.shape), 3, layout)

    @torch.inference_mode()
    def run() -> Any:
        return [layer.forward([x]), *layer.backward(dy, owned=False), *gradients.values()]

    return run
