"""All parameters, all gradients and all velocities, each kind in one flat buffer.

Layers hold views. Neighbouring layers' gradients are neighbours in memory, so that
fusing their messages needs no copy, and one update runs over as much as one likes.
"""

from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import torch

from workloads.graph import Graph, Layer, size

ALIGNMENT = 16  # elements: 64 bytes in float32, a cache line and the widest vector

Span = NamedTuple("Span", [("begin", int), ("end", int)])  # elements of the flat buffers
# Neighbouring layers whose gradients leave together. `trigger` is the one whose backward completes the group: the
# first of `layers`, in the graph's order.
Group = NamedTuple("Group", [("trigger", int), ("layers", List[int]), ("span", Span)])


class Arena:
    """Flat buffers in forward order, and the views into them."""

    def __init__(self, graph: Graph, channels_last: bool, dtype: Any, device: Any = "cpu") -> None:
        """Zeros; four-dimensional tensors are laid out channels-last where asked."""
        self._channels_last = channels_last
        self._places: Dict[str, Tuple[int, Tuple[int, ...]]] = {}
        self.spans: List[Span] = []  # a span a layer of the graph, empty for those without parameters
        offset = 0
        for layer in graph.layers:
            begin = offset
            for parameter in layer.parameters:
                self._places[parameter.name] = offset, parameter.shape
                offset += -(-size(parameter.shape) // ALIGNMENT) * ALIGNMENT
            self.spans.append(Span(begin, offset))
        self.parameters, self.gradients, self.velocities = (
            torch.zeros(offset, dtype=dtype, device=device) for _ in range(3)
        )

    @property
    def size(self) -> int:
        return sum(int(np.prod(shape)) for _, shape in self._places.values())

    def view(self, flat: Any, name: str) -> Any:
        offset, shape = self._places[name]
        piece = flat[offset : offset + size(shape)]
        if self._channels_last and len(shape) == 4:
            out, channels, height, width = shape
            return piece.view(out, height, width, channels).permute(0, 3, 1, 2)
        return piece.view(shape)

    def of(self, flat: Any, layer: Layer) -> Dict[str, Any]:
        """A layer's views by role."""
        return {each.name.rpartition(".")[2]: self.view(flat, each.name) for each in layer.parameters}

    def load(self, weights: Dict[str, np.ndarray]) -> None:
        """Copy canonical weights in and stop: the velocity is zero again; KeyError names a missing tensor."""
        for name in self._places:
            self.view(self.parameters, name).copy_(torch.from_numpy(np.ascontiguousarray(weights[name])))
        self.velocities.zero_()

    def export(self, flat: Any) -> Dict[str, np.ndarray]:
        return {name: exported(self.view(flat, name)) for name in self._places}


def exported(tensor: Any) -> np.ndarray:
    """A copy in the host's memory."""
    return np.array(tensor.cpu().numpy(), order="C", copy=True)
