"""Layer kind to layer, and the network that runs them: forward, loss, backward."""

from typing import Callable, Dict, List, NamedTuple, Tuple, Type

import numpy as np

from stagebench.adapters.reference.layers.base import Array, Kept, Layer
from stagebench.adapters.reference.layers.parameterless import (
    Add,
    AvgPool,
    Concat,
    Dropout,
    Flatten,
    LocalResponse,
    MaxPool,
    Relu,
)
from stagebench.adapters.reference.layers.tokens import (
    GELU,
    Attention,
    ClassToken,
    Embedding,
    LayerNorm,
    Mean,
    Positions,
    Select,
    Tied,
    Tokens,
)
from stagebench.adapters.reference.layers.weighted import BatchNorm, Convolution, Dense
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph

LAYERS: Dict[str, Type[Layer]] = {
    "conv": Convolution,
    "dense": Dense,
    "relu": Relu,
    "max_pool": MaxPool,
    "avg_pool": AvgPool,
    "lrn": LocalResponse,
    "batch_norm": BatchNorm,
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
    "tied": Tied,
}

FLOAT64 = 53  # significant bits of a float64

Lap = Callable[[int], None]


class Run(NamedTuple):
    """The results of one forward."""

    loss: float
    logits: Array  # (samples, classes), of the last head
    kept: List[Kept]  # by layer
    seeds: Arrays  # gradients of the mean loss by each head's logits


def ignored(index: int) -> None:
    """Take no time."""


class Network:
    """A graph lowered to layers with float64 parameters."""

    def __init__(self, graph: Graph, weights: Arrays, seed: int = 0, bits: int = FLOAT64) -> None:
        """`weights` by canonical name; KeyError names a parameter that has none.

        Every result of a layer, forward and backward, is rounded to `bits` significant bits.
        """
        self.graph = graph
        self._bits = bits
        self.layers: List[Layer] = []
        for node in graph.layers:
            own = {parameter.name[len(node.name) + 1 :]: weights[parameter.name] for parameter in node.parameters}
            made = LAYERS[node.kind](node, own, seed)
            made.share({layer.node.name: layer for layer in self.layers})
            self.layers.append(made)

    def forward(self, inputs: Array, labels: Array, observe: bool, lap: Lap = ignored) -> Run:
        """Return logits and loss of float64 inputs; with `observe`, update running statistics by this batch.

        `lap` gets a layer's index when it is done, here and in `backward`; the losses have the index after the last.
        """
        values, kept = self._values(inputs, lap)
        if observe:
            for layer, own in zip(self.layers, kept):
                layer.observe(own)
        loss = 0.0
        seeds = {}
        for head in self.graph.heads:
            mean, gradient = cross_entropy(values[head.layer], labels)
            loss += head.weight * mean
            seeds[head.layer] = head.weight * gradient
        lap(len(self.layers))
        return Run(loss, values[self.graph.heads[-1].layer], kept, seeds)

    def predict(self, inputs: Array) -> Array:
        """Return the last head's logits in inference mode."""
        values = {"input": inputs}
        for layer in self.layers:
            values[layer.node.name] = layer.predict([values[name] for name in layer.node.inputs])
        return values[self.graph.heads[-1].layer]

    def backward(self, run: Run, weight: float, lap: Lap = ignored) -> None:
        """Add weight x the gradients of a run's loss to the layers' gradients."""
        by_value = {name: weight * gradient for name, gradient in run.seeds.items()}
        lap(len(self.layers))
        for index in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[index]
            gradient = by_value.pop(layer.node.name, None)
            if gradient is not None:  # else nothing that bears loss reads this layer
                for name, part in zip(layer.node.inputs, layer.backward(run.kept[index], gradient)):
                    part = rounded(part, self._bits)
                    # No in-place sum: layers may hand the same array to several inputs.
                    by_value[name] = by_value[name] + part if name in by_value else part
            lap(index)

    def macs(self) -> int:
        """Count one sample's multiply-accumulates, from the real output shapes."""
        values, _ = self._values(np.zeros((1,) + self.graph.input_shape, np.int64 if self.graph.vocabulary else None))
        return sum(layer.macs(values[layer.node.name].shape[1:]) for layer in self.layers)

    def forget_gradients(self) -> None:
        for layer in self.layers:
            layer.gradients.clear()

    def named(self, kind: str) -> Arrays:
        """Return the layers' "weights", "gradients" or "statistics" by canonical name, not copied."""
        found = {}
        for layer in self.layers:
            for role, tensor in getattr(layer, kind).items():
                found[f"{layer.node.name}.{role}"] = tensor
        return found

    def _values(self, inputs: Array, lap: Lap = ignored) -> Tuple[Arrays, List[Kept]]:
        values = {"input": inputs}
        kept = []
        for index, layer in enumerate(self.layers):
            result, own = layer.forward([values[name] for name in layer.node.inputs])
            values[layer.node.name] = rounded(result, self._bits)
            kept.append(own)
            lap(index)
        return values, kept


def rounded(values: Array, bits: int) -> Array:
    """Return float64 numbers rounded to `bits` significant bits (Veltkamp's splitting)."""
    if bits == FLOAT64:
        return values
    scaled = values * (2.0 ** (FLOAT64 - bits) + 1.0)
    return scaled - (scaled - values)  # type: ignore[no-any-return]


def cross_entropy(logits: Array, labels: Array) -> Tuple[float, Array]:
    """Return the mean softmax cross-entropy over samples, and their tokens, and its gradient by the logits."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    right = labels[..., np.newaxis]
    gradient = np.exp(logs)
    np.put_along_axis(gradient, right, np.take_along_axis(gradient, right, -1) - 1.0, -1)
    return float(-np.take_along_axis(logs, right, -1).mean()), gradient / labels.size
