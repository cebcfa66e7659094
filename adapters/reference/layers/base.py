"""The layer of the reference, with an explicit forward and an explicit backward; and sliding windows.

Arrays are float64: (samples, channels, height, width), (samples, features) or (samples, positions, width). A layer
keeps nothing between the two calls: `forward` returns what `backward` will need, so that several parts of a batch can
be in flight at once.
"""

from abc import ABC, abstractmethod
from typing import Any, Dict, List, Tuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from stagebench.workloads import graph

Array = np.ndarray
Inputs = List[Array]
Roles = Dict[str, Array]  # by role: "weight", "bias", "running_mean", "running_var"
Kept = Any  # what a kind's backward needs
Shape = Tuple[int, ...]


class Layer(ABC):
    """A node of the graph with its parameters, gradients and running statistics."""

    def __init__(self, node: graph.Layer, weights: Roles, seed: int = 0) -> None:
        """`weights` are converted to float64; `seed` is for random layers."""
        self.node = node
        self.attrs = node.attrs
        self.seed = seed
        self.weights: Roles = {role: np.array(tensor, dtype=np.float64) for role, tensor in weights.items()}
        self.gradients: Roles = {}
        self.statistics: Roles = {}
        self.shared: Dict[str, Tuple[Layer, str]] = {}  # the layer that has a weight, and the weight's role there
        self.prepare()

    def share(self, earlier: "Dict[str, Layer]") -> None:
        """Take the weights that the node shares from the layers that have them, by name."""
        for role, name in self.node.shares.items():
            owner, _, its = name.rpartition(".")
            self.shared[role] = earlier[owner], its

    def prepare(self) -> None:  # noqa: B027 - most layers hold nothing else
        """Make what the kind holds besides; called once."""

    @abstractmethod
    def forward(self, inputs: Inputs) -> Tuple[Array, Kept]:
        """Return (output, what backward needs)."""

    def predict(self, inputs: Inputs) -> Array:
        """Return the output in inference; most layers compute as in training."""
        return self.forward(inputs)[0]

    @abstractmethod
    def backward(self, kept: Kept, dy: Array) -> Inputs:
        """Return the gradients of the inputs for that of the output; add the parameters' to `gradients`."""

    def observe(self, kept: Kept) -> None:  # noqa: B027 - most layers keep no statistics
        """Update running statistics by one batch, given a forward's second result."""

    def macs(self, output: Shape) -> int:
        """Return the multiply-accumulates of one sample's output of this shape."""
        return 0

    def accumulate(self, role: str, gradient: Array) -> None:
        if role in self.gradients:
            self.gradients[role] += gradient
        else:
            self.gradients[role] = gradient


class Windows:
    """The windows of one convolution or pooling layer over images of a fixed size."""

    def __init__(self, node: graph.Layer) -> None:
        self.kernel = node.attrs["kernel"]
        self.stride = node.attrs["stride"]
        self.pad = node.attrs["pad"]
        self.extent: Shape = tuple(node.input_shapes[0][1:])
        self.output: Shape = tuple(node.shape[1:])
        # The end of the last window; rounding up, it may exceed the right padding.
        reach = [(count - 1) * self.stride + self.kernel for count in self.output]
        self._padded = tuple(max(r, e + 2 * self.pad) for r, e in zip(reach, self.extent))
        rows, columns = (slice(self.pad, self.pad + extent) for extent in self.extent)
        self._inside = (slice(None), slice(None), rows, columns)

    def patches(self, images: Array, fill: float = 0.0) -> Array:
        """(n, c, h, w) to a view (n, c, kernel, kernel, out_h, out_w); `fill` is the padding's value."""
        padded = images
        if self._padded != self.extent:
            padded = np.full(images.shape[:2] + self._padded, fill)
            padded[self._inside] = images
        n, c, y, x = padded.strides
        shape = padded.shape[:2] + (self.kernel, self.kernel) + self.output
        return as_strided(padded, shape, (n, c, y, x, y * self.stride, x * self.stride), writeable=False)

    def scatter(self, patches: Array) -> Array:
        """(n, c, kernel, kernel, out_h, out_w) added up where each element was cut from: (n, c, h, w)."""
        padded = np.zeros(patches.shape[:2] + self._padded)
        height, width = ((count - 1) * self.stride + 1 for count in self.output)
        for i in range(self.kernel):
            for j in range(self.kernel):
                padded[:, :, i : i + height : self.stride, j : j + width : self.stride] += patches[:, :, i, j]
        return padded[self._inside]
