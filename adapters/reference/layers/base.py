"""What every layer of the reference is: an explicit forward and an explicit backward.

Arrays are float64: (samples, channels, height, width) or (samples, features). A layer
keeps nothing between the two calls: `forward` hands out what `backward` will need, so
that several parts of a batch can be under way at once.
"""

from abc import ABC, abstractmethod
from typing import Any, Dict, List, Tuple

import numpy as np

from workloads import graph

Shape = Tuple[int, ...]


class Layer(ABC):
    """One node of the graph with its parameters, gradients and running statistics by role."""

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """`weights` by role ("weight", "bias"), converted to float64; `seed` is for random layers."""
        self.node, self.attrs, self.seed = node, node.attrs, seed
        self.weights = {role: np.array(tensor, dtype=np.float64) for role, tensor in weights.items()}
        self.gradients: Dict[str, np.ndarray] = {}
        self.statistics: Dict[str, np.ndarray] = {}

    @abstractmethod
    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        """(output, what backward needs)."""

    def predict(self, inputs: List[np.ndarray]) -> np.ndarray:
        """The output in use; most layers compute what they do in training."""
        return self.forward(inputs)[0]

    @abstractmethod
    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """The gradient by each input; gradients by parameters are added to `gradients`."""

    def observe(self, kept: Any) -> None:  # noqa: B027 - most layers keep no statistics
        """Bring running statistics forward by one batch, given a forward's second result."""

    def macs(self, output: Shape) -> int:
        """Multiply-accumulates behind one sample's output of this shape."""
        return 0

    def accumulate(self, role: str, gradient: np.ndarray) -> None:
        if role in self.gradients:
            self.gradients[role] += gradient
        else:
            self.gradients[role] = gradient


def per_channel(vector: np.ndarray, dimensions: int) -> np.ndarray:
    """A (channels,) vector shaped to broadcast over an array of so many dimensions."""
    return vector.reshape((1, -1) + (1,) * (dimensions - 2))


def all_but_channels(dimensions: int) -> Tuple[int, ...]:
    """The axes that a per-channel sum runs over."""
    return (0,) + tuple(range(2, dimensions))
