"""Sliding windows: cut an image into patches, and the adjoint, which adds patches back.

NumPy 1.19 has no sliding_window_view.
"""

from typing import Tuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from workloads import graph


class Windows:
    """The windows of one convolution or pooling layer over images of a fixed size."""

    def __init__(self, node: graph.Layer) -> None:
        self.kernel, self.stride, self.pad = node.attrs["kernel"], node.attrs["stride"], node.attrs["pad"]
        self.extent: Tuple[int, ...] = tuple(node.input_shapes[0][1:])
        self.output: Tuple[int, ...] = tuple(node.shape[1:])
        # What the last window reaches; rounding up, it may hang over the right padding.
        reach = [(count - 1) * self.stride + self.kernel for count in self.output]
        self._padded = tuple(max(r, e + 2 * self.pad) for r, e in zip(reach, self.extent))

    def patches(self, images: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """(n, c, h, w) to a view (n, c, kernel, kernel, out_h, out_w); `fill` stands in the padding."""
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
