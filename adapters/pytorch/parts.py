"""One part of a network that ranks hold together, and what crosses its borders.

Oldest Python: 3.6.
"""

import time
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from adapters.pytorch.net import Net, Piece
from workloads.graph import Graph


class Part(nn.Module):
    """A piece of a graph between ranks: what enters and leaves is contiguous, of one type."""

    def __init__(self, graph: Graph, piece: Piece, weights: Dict[str, np.ndarray], fast: bool) -> None:
        """Its layers alone are made."""
        super().__init__()
        self.net = Net(graph, weights, fast, piece)
        shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
        self.enters = [shapes[name] for name in piece.entering]
        self.leaves = [shapes[name] for name in piece.leaving]
        self._inner = piece.end < len(graph.layers)

    def place(self, device: Any, dtype: Any, layout: Any, precision: str) -> "Part":
        """To a device; values cross in the precision's type, layers compute in it."""
        self.net.to(device, dtype, memory_format=layout).train()
        self._layout, self._mixed = layout, precision == "bfloat16"
        self.crosses = torch.bfloat16 if self._mixed else dtype
        return self

    def forward(self, *entering: torch.Tensor) -> Any:
        """The values that leave, a tuple; the last part's are the heads' logits."""
        placed = [value.to(memory_format=self._layout) if value.dim() == 4 else value for value in entering]
        with torch.autocast(entering[0].device.type, dtype=torch.bfloat16, enabled=self._mixed):
            leaving = self.net(*placed)
        if not self._inner:
            return tuple(leaving)
        return tuple(value.to(self.crosses).contiguous() for value in leaving)


class Neighbours:
    """The ranks that hold the parts before and after this one; counts the seconds that it waits for them."""

    def __init__(self, part: Part, ranks: Sequence[int], index: int, device: Any) -> None:
        """`ranks` are those of all parts, in order; this is the one at `index`."""
        self._part, self._device = part, device
        self.before = ranks[index - 1] if index else None
        self.after = ranks[index + 1] if index + 1 < len(ranks) else None
        self._sent: List[Any] = []
        self.waited = 0.0

    def entering(self, samples: int) -> List[torch.Tensor]:
        """Values of the part before."""
        return self._received(self.before, self._part.enters, samples)

    def leaving(self, samples: int) -> List[torch.Tensor]:
        """Gradients of what left, from the part after."""
        return self._received(self.after, self._part.leaves, samples)

    def send(self, rank: Any, values: Sequence[torch.Tensor]) -> None:
        """Begin to send to the part before or after."""
        kept = [value.detach().to(self._part.crosses).contiguous() for value in values]
        self._sent += [(dist.isend(value, rank), value) for value in kept]

    def settle(self) -> None:
        """Wait until all has been sent."""
        begin = time.perf_counter()
        for work, _ in self._sent:
            work.wait()
        self._synchronize()
        self._sent = []
        self.waited += time.perf_counter() - begin

    def _received(self, rank: Any, shapes: List[Tuple[int, ...]], samples: int) -> List[torch.Tensor]:
        self._synchronize()  # what is still computed here is no waiting
        begin = time.perf_counter()
        options = {"dtype": self._part.crosses, "device": self._device}
        values = [torch.empty((samples,) + tuple(shape), **options) for shape in shapes]
        for work in [dist.irecv(value, rank) for value in values]:
            work.wait()
        self._synchronize()
        self.waited += time.perf_counter() - begin
        return values

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
