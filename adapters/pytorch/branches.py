"""A network whose blocks are cut along their branches, as one of the ranks sees it that hold it together."""

import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from adapters.pytorch.net import Net
from suite.worker.pipeline_stages import Block, Stage, trunk
from workloads.graph import Graph

Shape = Tuple[int, ...]


class BlockExchange:
    """The exchanges at a block's two ends, and the seconds that this rank waits there."""

    def __init__(self, rank: int, crosses: Any, layout: Any) -> None:
        """Values cross in the type `crosses`; images have the memory format `layout`."""
        self._rank, self._crosses, self._layout = rank, crosses, layout
        self._waited: Optional[float] = None  # seconds, where anybody asks

    def entering(self, value: torch.Tensor) -> torch.Tensor:
        """The common input for this rank's branches: what flows back to it is summed over all ranks."""
        entered = value.view_as(value)
        if entered.requires_grad:
            entered.register_hook(self._summed)
        return entered

    def leaving(self, mine: Sequence[torch.Tensor], owners: Sequence[int], shapes: Sequence[Shape]) -> List[Any]:
        """All branches' outputs on every rank; back flows to each rank what is its own, the same as without a cut."""
        own, samples = iter(mine), len(mine[0])
        options = {"dtype": self._crosses, "device": mine[0].device}
        values = []
        for owner, shape in zip(owners, shapes):
            layout = self._layout_of(1 + len(shape))
            if owner == self._rank:
                values.append(next(own).to(self._crosses).contiguous(memory_format=layout))
            else:
                values.append(torch.empty((samples,) + shape, memory_format=layout, **options))
        self._settle([dist.broadcast(flat(each), owner, async_op=True) for each, owner in zip(values, owners)])
        return values

    def begin(self) -> None:
        """Count the waiting from now on; on a GPU that waits for the device at every exchange."""
        self._waited = 0.0

    def end(self) -> float:
        """Seconds since `begin`, the exchanges themselves among them."""
        assert self._waited is not None, "begin comes first"
        waited, self._waited = self._waited, None
        return waited

    def _summed(self, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone(memory_format=self._layout_of(gradient.dim()))
        self._settle([dist.all_reduce(flat(total), async_op=True)])
        return total

    def _layout_of(self, dimensions: int) -> Any:
        """Numbers lie in the same order on all ranks."""
        return self._layout if dimensions == 4 else torch.contiguous_format

    def _settle(self, works: List[Any]) -> None:
        if self._waited is None:
            for work in works:
                work.wait()
            return
        self._synchronize()  # what is still computed here is no waiting
        begin = time.perf_counter()
        for work in works:
            work.wait()
        self._synchronize()
        self._waited += time.perf_counter() - begin

    def _synchronize(self) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()


class BranchNet(nn.Module):
    """Runs a graph with its ranks: the trunk on every one, of each block this rank's own branches."""

    def __init__(
        self,
        graph: Graph,
        cut: List[Block],
        rank: int,
        weights: Dict[str, np.ndarray],
        fast: bool,
        exchange: BlockExchange,
        ways: Dict[str, str],
    ) -> None:
        """`weights` by canonical names; KeyError names a missing one."""
        super().__init__()
        self._cut, self._exchange = cut, exchange
        self._shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
        self.trunk_stages = trunk(graph, cut)
        self.trunk = nn.ModuleList(Net(graph, weights, fast, stage, ways) for stage in self.trunk_stages)
        own = [[stage for stage, owner in zip(*block) if owner == rank] for block in cut]
        self.own_stages = [stage for stages in own for stage in stages]
        self.own = nn.ModuleList(
            nn.ModuleList(Net(graph, weights, fast, stage, ways) for stage in stages) for stages in own
        )

    def forward(self, images: torch.Tensor) -> List[torch.Tensor]:
        """Logits (samples, classes) of every head, on every rank."""
        values: Dict[str, torch.Tensor] = {"input": images}
        for net, stage, block, branches in zip(self.trunk, self.trunk_stages, self._cut, self.own):
            values = dict(zip(stage.leaving, net(*[values[name] for name in stage.entering])))
            leaving = [name for branch in block.branches for name in branch.leaving]
            entering = self._exchange.entering(values[block.branches[0].entering[0]])
            mine = [branch(entering)[0] for branch in branches]
            shapes = [self._shapes[name] for name in leaving]
            values.update(zip(leaving, self._exchange.leaving(mine, block.owners, shapes)))
        heads: List[torch.Tensor] = self.trunk[-1](*[values[name] for name in self.trunk_stages[-1].entering])
        return heads

    def trainable(self) -> Iterator[Tuple[str, nn.Parameter]]:
        """(canonical name, parameter) of the trunk and of this rank's branches."""
        return ((name, tensor) for name, tensor in self.tensors() if isinstance(tensor, nn.Parameter))

    def tensors(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """Yield (canonical name, tensor) of the trunk and of this rank's branches, running statistics among them."""
        return (each for net, _ in self.nets() for each in net.tensors())

    def nets(self, shared: bool = True, own: bool = True) -> Iterator[Tuple[Net, List[Shape]]]:
        """The parts of the trunk, and this rank's branches; each with the shapes of what enters, without the batch."""
        nets = [*self.trunk] * shared + [branch for branches in self.own for branch in branches] * own
        stages: List[Stage] = self.trunk_stages * shared + self.own_stages * own
        for net, stage in zip(nets, stages):
            yield net, [self._shapes[name] for name in stage.entering]


def flat(value: torch.Tensor) -> torch.Tensor:
    """A dense tensor's numbers in a row, as they lie in memory: what a collective call takes whatever the format."""
    return value.detach().as_strided((value.numel(),), (1,))
