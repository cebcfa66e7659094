"""What the parts of a network hold, brought together on every rank of it.

Oldest Python: 3.6.
"""

from typing import Any, Dict, List, Sequence

import numpy as np
import torch
import torch.distributed as dist

from adapters.pytorch.base import to_numpy
from adapters.pytorch.net import Piece
from workloads.graph import Graph


class Gather:
    """Collective questions to one network's ranks, over host memory."""

    def __init__(self, graph: Graph, pieces: Sequence[Piece], ranks: Sequence[int], group: Any, dtype: Any) -> None:
        """`ranks` hold the pieces, in order, and are the gloo group's."""
        self._ranks, self._group, self._dtype = list(ranks), group, dtype
        self._shapes: Dict[str, Any] = {}
        self._owners: Dict[str, int] = {}
        for piece, rank in zip(pieces, ranks):
            for layer in graph.layers[piece.begin : piece.end]:
                found = [(each.name, each.shape) for each in layer.parameters] + list(layer.buffers)
                self._shapes.update(found)
                self._owners.update((name, rank) for name, _ in found)

    def tensors(self, mine: Dict[str, Any]) -> Dict[str, np.ndarray]:
        """Every part's tensors, of the names that the parts bring."""
        names: List[Any] = [None] * len(self._ranks)
        dist.all_gather_object(names, sorted(mine), group=self._group)
        found: Dict[str, np.ndarray] = {}
        for name in [name for part in names for name in part]:
            if name in mine:
                values = torch.from_numpy(to_numpy(mine[name]))
            else:
                values = torch.empty(tuple(self._shapes[name]), dtype=self._dtype)
            dist.broadcast(values, self._owners[name], group=self._group)
            found[name] = values.numpy()
        return found

    def from_last(self, value: Any) -> Any:
        """The last part's array, on all."""
        cell = [value]
        dist.broadcast_object_list(cell, self._ranks[-1], group=self._group)
        return cell[0]

    def total(self, number: int) -> int:
        """The parts' sum."""
        cell = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(cell, group=self._group)
        return int(cell.item())
