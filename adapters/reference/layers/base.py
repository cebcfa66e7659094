"""The layer of the reference, with an explicit forward and an explicit backward; and sliding windows.

Arrays are float64: (samples, channels, height, width) or (samples, features). A layer keeps nothing between the two
calls: `forward` returns what `backward` will need, so that several parts of a batch can be in flight at once.
"""

from abc import ABC, abstractmethod
from typing import Any, Dict, List, Tuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from workloads import graph

Shape = Tuple[int, ...]


class Layer(ABC):
    """A node of the graph with its parameters, gradients and running statistics by role."""

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """`weights` by role ("weight", "bias"), converted to float64; `seed` is for random layers."""
        self.node, self.attrs, self.seed = node, node.attrs, seed
        self.weights = {role: np.array(tensor, dtype=np.float64) for role, tensor in weights.items()}
        self.gradients: Dict[str, np.ndarray] = {}
        self.statistics: Dict[str, np.ndarray] = {}

    @abstractmethod
    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        """Return (output, what backward needs)."""

    def predict(self, inputs: List[np.ndarray]) -> np.ndarray:
        """Return the output in inference; most layers compute as in training."""
        return self.forward(inputs)[0]

    @abstractmethod
    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """Return the gradients of the inputs; add the parameters' gradients to `gradients`."""

    def observe(self, kept: Any) -> None:  # noqa: B027 - most layers keep no statistics
        """Update running statistics by one batch, given a forward's second result."""

    def macs(self, output: Shape) -> int:
        """Return the multiply-accumulates of one sample's output of this shape."""
        return 0

    def accumulate(self, role: str, gradient: np.ndarray) -> None:
        if role in self.gradients:
            self.gradients[role] += gradient
        else:
            self.gradients[role] = gradient


def per_channel(vector: np.ndarray, dimensions: int) -> np.ndarray:
    """Reshape a (channels,) vector to broadcast over an array of `dimensions` dimensions."""
    return vector.reshape((1, -1) + (1,) * (dimensions - 2))


def all_but_channels(dimensions: int) -> Tuple[int, ...]:
    """Return the axes of a per-channel sum."""
    return (0,) + tuple(range(2, dimensions))


class Windows:
    """The windows of one convolution or pooling layer over images of a fixed size."""

    def __init__(self, node: graph.Layer) -> None:
        self.kernel, self.stride, self.pad = node.attrs["kernel"], node.attrs["stride"], node.attrs["pad"]
        self.extent: Tuple[int, ...] = tuple(node.input_shapes[0][1:])
        self.output: Tuple[int, ...] = tuple(node.shape[1:])
        # The end of the last window; rounding up, it may exceed the right padding.
        reach = [(count - 1) * self.stride + self.kernel for count in self.output]
        self._padded = tuple(max(r, e + 2 * self.pad) for r, e in zip(reach, self.extent))

    def patches(self, images: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """(n, c, h, w) to a view (n, c, kernel, kernel, out_h, out_w); `fill` is the padding's value."""
        padded = images
        if self._padded != self.extent:
            padded = np.full(images.shape[:2] + self._padded, fill)
            padded[self._inside] = images
        n, c, y, x = padded.strides
        shape = padded.shape[:2] + (self.kernel, self.kernel) + self.output
        return as_strided(padded, shape, (n, c, y, x, y * self.stride, x * self.stride), writeable=False)

    def scatter(self, patches: np.ndarray) -> np.ndarray:
        """(n, c, kernel, kernel, out_h, out_w) added up where each element was cut from: (n, c, h, w)."""
        padded = np.zeros(patches.shape[:2] + self._padded)
        for i in range(self.kernel):
            for j in range(self.kernel):
                padded[:, :, self._taken(i, 0), self._taken(j, 1)] += patches[:, :, i, j]
        return padded[self._inside]

    @property
    def _inside(self) -> Tuple[slice, ...]:
        rows, columns = (slice(self.pad, self.pad + extent) for extent in self.extent)
        return slice(None), slice(None), rows, columns

    def _taken(self, offset: int, axis: int) -> slice:
        return slice(offset, offset + (self.output[axis] - 1) * self.stride + 1, self.stride)
