"""Where the padding of a window layer goes, and when TensorFlow's own "SAME" means the same.

"SAME" pads so that the output has ceil(extent / stride) positions, the odd element to the
right. It is taken only where that equals the graph's explicit padding: for 3 x 3 windows
with padding 1 at stride 1, but not at stride 2 on even extents. It matters: TensorFlow's
convolution with an explicit padding list loses oneDNN's backward kernels.
"""

from typing import List, Tuple

import numpy as np

from workloads.graph import Layer

Pads = List[Tuple[int, int]]  # (before, after) for height and width


def needed(layer: Layer) -> Pads:
    """What must stand around the input for every window to be whole."""
    kernel, stride, pad = layer.attrs["kernel"], layer.attrs["stride"], layer.attrs["pad"]
    return [
        (pad, max(0, (count - 1) * stride + kernel - extent - pad))
        for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:])
    ]


def same(layer: Layer) -> bool:
    """Whether "SAME" puts exactly the padding that is needed."""
    kernel, stride = layer.attrs["kernel"], layer.attrs["stride"]
    pads: Pads = []
    for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:]):
        if -(-extent // stride) != count:
            return False
        total = max(0, (count - 1) * stride + kernel - extent)
        pads.append((total // 2, total - total // 2))
    return pads == needed(layer)


def divisors(layer: Layer) -> np.ndarray:
    """How many elements an average divides by, (height, width) of the output.

    Real elements, with `count_padding` also the padded zeros, never what a window rounded
    up hangs over the padding.
    """
    kernel, stride, pad = layer.attrs["kernel"], layer.attrs["stride"], layer.attrs["pad"]
    margin = pad if layer.attrs["count_padding"] else 0
    counts = []
    for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:]):
        begin = np.arange(count) * stride - pad
        counts.append(np.minimum(begin + kernel, extent + margin) - np.maximum(begin, -margin))
    return counts[0][:, np.newaxis] * counts[1]
