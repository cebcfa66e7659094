"""Layers without weights that work element by element or only move elements."""

from typing import Any, Dict, List, Tuple

import numpy as np

from adapters.reference.layers.base import Layer
from suite.worker.contract import dropout_seed
from workloads import graph


class Relu(Layer):
    """max(x, 0); the gradient at 0 is 0."""

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        return np.maximum(inputs[0], 0.0), inputs[0] > 0.0

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        return [gradient * kept]


class Dropout(Layer):
    """Zero with probability `rate`, else x / (1 - rate); the layer has a random stream of its own."""

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """The stream is keyed by seed and name."""
        super().__init__(node, weights, seed)
        self._stream = np.random.RandomState(dropout_seed(seed, 0, node.name))

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        rate = self.attrs["rate"]
        if rate == 0.0:
            return inputs[0], 1.0
        mask = (self._stream.random_sample(inputs[0].shape) >= rate) / (1.0 - rate)
        return inputs[0] * mask, mask

    def predict(self, inputs: List[np.ndarray]) -> np.ndarray:
        return inputs[0]

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        return [gradient * kept]


class Concat(Layer):
    """Join along channels."""

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        return np.concatenate(inputs, axis=1), np.cumsum([x.shape[1] for x in inputs])[:-1]

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        return list(np.split(gradient, kept, axis=1))


class Add(Layer):
    """Element by element, of any number of inputs."""

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        return sum(inputs[1:], inputs[0]), len(inputs)

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        return [gradient] * int(kept)


class Flatten(Layer):
    """(c, h, w) to (features,), in C, H, W order."""

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        return inputs[0].reshape(len(inputs[0]), -1), inputs[0].shape

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        return [gradient.reshape(kept)]
