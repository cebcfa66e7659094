"""Weights between the workload's layouts and TensorFlow's.

Convolutions: OIHW here, HWIO there. Dense layers: (out, in) here, (in, out) there. The
graph flattens in C, H, W order; where activations are NHWC, the rows of the dense layers
that read them are put in H, W, C order once, so that no step has to transpose.
"""

from typing import Dict, FrozenSet, Set, Tuple

import numpy as np

from workloads.graph import Graph

Shape = Tuple[int, ...]


class Layout:
    """Translates every parameter of one graph; what has one axis is the same in both."""

    def __init__(self, graph: Graph, images: str) -> None:
        """`images` is "NHWC" or "NCHW"."""
        read, unfoldable = readers_of_flat(graph)
        folding = images == "NHWC"
        self.folded: FrozenSet[str] = frozenset(set(read.values()) - unfoldable) if folding else frozenset()
        shapes = {layer.name: layer.input_shapes[0] for layer in graph.layers}
        self._rows = {dense: shapes[flat] for dense, flat in read.items() if flat in self.folded}

    def native(self, name: str, tensor: np.ndarray) -> np.ndarray:
        layer = name.rsplit(".", 1)[0]
        if tensor.ndim == 4:
            return tensor.transpose(2, 3, 1, 0)
        if tensor.ndim == 2 and layer in self._rows:
            split = tensor.reshape((len(tensor),) + self._rows[layer])
            return split.transpose(2, 3, 1, 0).reshape(-1, len(tensor))
        return tensor.T

    def canonical(self, name: str, tensor: np.ndarray) -> np.ndarray:
        """From TensorFlow's layout to the workload's; contiguous."""
        layer = name.rsplit(".", 1)[0]
        if tensor.ndim == 4:
            tensor = tensor.transpose(3, 2, 0, 1)
        elif tensor.ndim == 2 and layer in self._rows:
            channels, height, width = self._rows[layer]
            out = tensor.shape[1]
            tensor = tensor.reshape(height, width, channels, out).transpose(3, 2, 0, 1).reshape(out, -1)
        else:
            tensor = tensor.T
        return np.ascontiguousarray(tensor)


def readers_of_flat(graph: Graph) -> Tuple[Dict[str, str], Set[str]]:
    """({dense layer: the flatten of an image that it reads}, flattens of an image that something else reads).

    Layers that work element by element may be between them.
    """
    origin: Dict[str, str] = {}
    read: Dict[str, str] = {}
    otherwise: Set[str] = set()
    for layer in graph.layers:
        origins = [origin[name] for name in layer.inputs if name in origin]
        if layer.kind == "flatten" and len(layer.input_shapes[0]) == 3:
            origin[layer.name] = layer.name
        elif layer.kind == "dense" and origins:
            read[layer.name] = origins[0]
        elif layer.elementwise and origins:
            origin[layer.name] = origins[0]
        else:
            otherwise.update(origins)
    otherwise.update(origin[head.layer] for head in graph.heads if head.layer in origin)
    return read, otherwise
