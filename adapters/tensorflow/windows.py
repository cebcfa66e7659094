"""The padding of a layer's windows, and the number of elements in each."""

from typing import List, Tuple

import numpy as np

from stagebench.workloads.graph import Layer

Pads = List[Tuple[int, int]]  # (before, after) for height and width


def padding_needed(layer: Layer) -> Pads:
    """Return the padding that makes every window whole."""
    kernel, stride, pad = layer.attrs["kernel"], layer.attrs["stride"], layer.attrs["pad"]
    return [
        (pad, max(0, (count - 1) * stride + kernel - extent - pad))
        for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:])
    ]


def same_padding(layer: Layer) -> bool:
    """Check that "SAME" pads exactly as needed: ceil(extent / stride) positions, the odd element to the right."""
    kernel, stride = layer.attrs["kernel"], layer.attrs["stride"]
    pads: Pads = []
    for extent, count in zip(layer.input_shapes[0][1:], layer.shape[1:]):
        if -(-extent // stride) != count:
            return False
        total = max(0, (count - 1) * stride + kernel - extent)
        pads.append((total // 2, total - total // 2))
    return pads == padding_needed(layer)


def divisors(layer: Layer) -> np.ndarray:
    """Return the number of elements that each average divides by, (height, width) of the output.

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
