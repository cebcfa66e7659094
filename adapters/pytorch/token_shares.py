"""Shares of tokens: on each of the ranks that hold one network some layers compute a share of the tokens.

These are layer normalisations and sums (Korthikanti et al. 2022, section 4.2.2). Other layers want all tokens.
"""

from collections import defaultdict
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Set

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from stagebench.adapters.pytorch.lower import Operation
from stagebench.adapters.pytorch.net import Net
from stagebench.workloads.graph import Graph, size

SHARE, ALL = Shard(1), Replicate()  # of (samples, tokens, width)
Moves = List[Optional[Callable[[Tensor], Tensor]]]


class TokenShares:
    """The layers of a graph that compute a share of the tokens; none unless `wanted`, or if shares were unequal."""

    def __init__(self, graph: Graph, world: int, wanted: bool) -> None:
        self._graph, self._world = graph, world
        self._heads = {head.layer for head in graph.heads}
        self.computing: Set[str] = {
            layer.name
            for layer in graph.layers
            if wanted and layer.kind in ("layer_norm", "add") and layer.name not in self._heads
            if len(layer.shape) == 2 and layer.shape[0] % world == 0
        }
        self._given = set(self.computing)  # layers whose outputs are a share
        self._readers: Dict[str, Set[str]] = defaultdict(set)
        for layer in graph.layers:
            for name in layer.inputs:
                self._readers[name].add(layer.name)

    def columns(self, name: str, **layouts: Any) -> ColwiseParallel:
        """Return how a dense layer is cut by columns: it gathers its input where that is a share."""
        given = any(name in self._readers[share] for share in self._given)
        return ColwiseParallel(input_layouts=SHARE if given else ALL, **layouts)

    def rows(self, name: str) -> RowwiseParallel:
        """Return how a dense layer is cut by rows: a rank keeps a share of the sum where readers want no more."""
        if self._wanted(name, self.computing):
            self._given.add(name)
        return RowwiseParallel(output_layouts=SHARE if name in self._given else ALL)

    def apply(self, net: Net, mesh: DeviceMesh, styles: Dict[str, Any], trained: Set[str]) -> int:
        """Have the network compute shares; return how many numbers of a sample a rank gives for what it gathers.

        `styles` cut dense layers, which move what they are given; a gradient flows back to the layers in `trained`.
        """
        takers = {name for name, cut in styles.items() if getattr(cut, "input_layouts", None) == (SHARE,)}
        takers |= self.computing
        numbers = 0
        for place, node in enumerate(self._graph.layers):
            operation, output, first, rest = net.program[place]
            moves: Moves = []
            for name, shape in zip(node.inputs, node.input_shapes):
                given, wanted = name in self._given, node.name in takers
                ends = (SHARE, ALL) if given else (ALL, SHARE)
                moves.append(None if given == wanted else partial(moved, mesh, *ends))
                # A share is gathered, or that of the gradient.
                numbers += size(shape) // self._world * (given > wanted or (wanted > given and name in trained))
            if any(moves):
                operation = partial(on_moved, operation, moves)
            if node.name not in self._given and self._wanted(node.name, takers):
                self._given.add(node.name)
                operation = partial(then_moved, operation, partial(moved, mesh, ALL, SHARE))
                numbers += size(node.shape) // self._world * (node.name in trained)
            net.program[place] = (operation, output, first, rest)
        return numbers

    def sum_up(self, net: Net, mesh: DeviceMesh) -> int:
        """Have ranks sum up the gradients of the layers that compute shares; return their bytes."""
        tensors = [tensor for name, tensor in net.trainable() if name.rpartition(".")[0] in self.computing]
        for tensor in tensors:
            tensor.register_post_accumulate_grad_hook(partial(summed, mesh))
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def _wanted(self, name: str, takers: Set[str]) -> bool:
        """Return whether all readers of a layer take a share of its tokens."""
        return name not in self._heads and bool(self._readers[name]) and self._readers[name] <= takers


def moved(mesh: DeviceMesh, now: Placement, then: Placement, x: Tensor) -> Tensor:
    """Take a share of the tokens, or gather all; in the backward the gradient comes back the opposite way."""
    placed = DTensor.from_local(x, mesh, [now], run_check=False)
    return placed.redistribute(placements=[then]).to_local(grad_placements=[then])


def on_moved(operation: Operation, moves: Moves, *inputs: Tensor) -> Tensor:
    """Compute a layer on what was moved."""
    return operation(*[x if move is None else move(x) for move, x in zip(moves, inputs)])


def then_moved(operation: Operation, move: Callable[[Tensor], Tensor], *inputs: Tensor) -> Tensor:
    """Compute a layer, and move its output."""
    return move(operation(*inputs))


def summed(mesh: DeviceMesh, parameter: Tensor) -> None:
    """Sum up a gradient, of which each rank has what its tokens give."""
    parts = DTensor.from_local(parameter.grad, mesh, [Partial()], run_check=False)
    parameter.grad = parts.redistribute(placements=[ALL]).to_local()
