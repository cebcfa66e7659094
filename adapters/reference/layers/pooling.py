"""Max and average pooling."""

from typing import Any, Dict, List, Tuple

import numpy as np

from adapters.reference.layers.base import Layer, Windows
from workloads import graph


class MaxPool(Layer):
    """The largest value of each window; padding never wins.

    Where several are equal, the gradient goes to the first in row-major order of the
    window, as PyTorch and oneDNN do.
    """

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        super().__init__(node, weights, seed)
        self.windows = Windows(node)

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        patches = self.windows.patches(inputs[0], fill=-np.inf)
        n, c, kernel = patches.shape[:3]
        flat = patches.reshape((n, c, kernel * kernel) + self.windows.output)
        winner = flat.argmax(axis=2)[:, :, np.newaxis]
        return np.take_along_axis(flat, winner, axis=2)[:, :, 0], winner

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        kernel = self.windows.kernel
        position = np.arange(kernel * kernel).reshape(1, 1, -1, 1, 1)
        patches = np.where(kept == position, gradient[:, :, np.newaxis], 0.0)
        shape = gradient.shape[:2] + (kernel, kernel) + self.windows.output
        return [self.windows.scatter(patches.reshape(shape))]


class AvgPool(Layer):
    """The mean of each window.

    The divisor counts the real elements, with `count_padding` also the padded zeros, but
    never what a window rounded up hangs over the padding (Caffe's and PyTorch's rule).
    """

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """The divisors depend on the position alone."""
        super().__init__(node, weights, seed)
        self.windows = Windows(node)
        rows, columns = (self._counted(axis) for axis in range(2))
        self.divisor = rows[:, np.newaxis] * columns

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        return self.windows.patches(inputs[0]).sum(axis=(2, 3)) / self.divisor, None

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        kernel = self.windows.kernel
        shares = (gradient / self.divisor)[:, :, np.newaxis, np.newaxis]
        shape = gradient.shape[:2] + (kernel, kernel) + self.windows.output
        return [self.windows.scatter(np.broadcast_to(shares, shape))]

    def _counted(self, axis: int) -> np.ndarray:
        """Elements that count along one axis, for each output position."""
        windows, margin = self.windows, self.windows.pad if self.attrs["count_padding"] else 0
        begin = np.arange(windows.output[axis]) * windows.stride - windows.pad
        end = np.minimum(begin + windows.kernel, windows.extent[axis] + margin)
        return end - np.maximum(begin, -margin)
