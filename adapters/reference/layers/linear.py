"""Layers with weights that multiply: convolution and dense."""

from typing import Any, Dict, List, Tuple

import numpy as np

from adapters.reference.layers.base import Layer, Shape, Windows
from workloads import graph


class Convolution(Layer):
    """Cross-correlation as a matrix product over patches, a sample and a group at a time.

    Patches are cut again in backward: kept, they would be the largest thing in memory.
    """

    def __init__(self, node: graph.Layer, weights: Dict[str, np.ndarray], seed: int = 0) -> None:
        """Weights are (out, in / groups, kernel, kernel)."""
        super().__init__(node, weights, seed)
        self.windows = Windows(node)

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        """y[o] = sum over the group's channels and the window of w[o] x, plus bias."""
        images = inputs[0]
        output = np.empty((len(images),) + self.node.shape)
        kernels = self._by_group(self.weights["weight"])
        for n in range(len(images)):
            target = self._by_group(output[n])
            for group, columns in enumerate(self._columns(images[n : n + 1])):
                target[group] = kernels[group] @ columns
        if "bias" in self.weights:
            output += self.weights["bias"].reshape(-1, 1, 1)
        return output, images

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """`dw = dy columns^T`; `dcolumns = w^T dy`, added back to where the columns were cut from."""
        images = kept
        kernels = self._by_group(self.weights["weight"])
        weight_gradient = np.zeros_like(kernels)
        image_gradient = np.empty_like(images)
        for n in range(len(images)):
            by_output = self._by_group(gradient[n])
            column_gradients = []
            for group, columns in enumerate(self._columns(images[n : n + 1])):
                weight_gradient[group] += by_output[group] @ columns.T
                column_gradients.append(kernels[group].T @ by_output[group])
            image_gradient[n] = self._scattered(np.stack(column_gradients))
        self.accumulate("weight", weight_gradient.reshape(self.weights["weight"].shape))
        if "bias" in self.weights:
            self.accumulate("bias", gradient.sum(axis=(0, 2, 3)))
        return [image_gradient]

    def macs(self, output: Shape) -> int:
        """Every output element takes one kernel's worth."""
        return int(self.weights["weight"][0].size * np.prod(output))

    def _columns(self, image: np.ndarray) -> np.ndarray:
        """(groups, channels / groups x kernel x kernel, positions)."""
        patches = self.windows.patches(image)
        return patches.reshape(self.attrs["groups"], -1, self.windows.output[0] * self.windows.output[1])

    def _scattered(self, columns: np.ndarray) -> np.ndarray:
        kernel = self.attrs["kernel"]
        return self.windows.scatter(columns.reshape((1, -1, kernel, kernel) + self.windows.output))[0]

    def _by_group(self, tensor: np.ndarray) -> np.ndarray:
        """(out, ...) to a view (groups, out / groups, everything else)."""
        groups = self.attrs["groups"]
        return tensor.reshape(groups, tensor.shape[0] // groups, -1)


class Dense(Layer):
    """y = W x + b with W (out, in)."""

    def forward(self, inputs: List[np.ndarray]) -> Tuple[np.ndarray, Any]:
        output = inputs[0] @ self.weights["weight"].T
        if "bias" in self.weights:
            output += self.weights["bias"]
        return output, inputs[0]

    def backward(self, kept: Any, gradient: np.ndarray) -> List[np.ndarray]:
        """`dW = dy^T x`, `dx = dy W`."""
        self.accumulate("weight", gradient.T @ kept)
        if "bias" in self.weights:
            self.accumulate("bias", gradient.sum(axis=0))
        return [gradient @ self.weights["weight"]]

    def macs(self, output: Shape) -> int:
        return int(self.weights["weight"].size)
