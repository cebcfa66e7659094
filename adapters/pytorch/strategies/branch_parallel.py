"""`branch_parallel`: the branches of every block are distributed over the ranks, the other layers are whole on each.

Two exchanges a block: where the branches end, every rank sends its outputs to all; where they begin, the backward sums
up what flows back to their common input. All ranks are given the same batch, as for `tensor_parallel`.
"""

import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stagebench.adapters.pytorch.base import to_numpy
from stagebench.adapters.pytorch.candidates import Ways
from stagebench.adapters.pytorch.net import Heads, Named, Net, blank, counted_macs, shapes_of
from stagebench.adapters.pytorch.replica import SharedTrainer
from stagebench.adapters.pytorch.stages import Gather, joint_norm
from stagebench.suite.worker.contract import Batch, LayerTimes, Unsupported
from stagebench.suite.worker.pipeline_stages import Block, blocks, trunk
from stagebench.suite.worker.trainer import Arrays, Notes
from stagebench.workloads.graph import Graph, Shape, size

Part = Tuple[Net, Sequence[str]]  # with the names of what enters


class BranchParallel(SharedTrainer):
    """A trainer of one network on all ranks: GoogLeNet's blocks have four branches and two exchanges each."""

    # Set by `build`.
    _exchange: Any = None
    _gather: Any = None
    _cut: List[Block]
    _bubble: Optional[Dict[str, float]] = None

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        self._exchange.begin()
        super().forward(batch)
        self._bubble = {"forward": self._exchange.end()}

    def backward(self) -> None:
        assert self._bubble is not None, "forward comes first"
        self._exchange.begin()
        super().backward()
        self._bubble["backward"] = self._exchange.end()

    def bubble(self) -> Optional[Dict[str, float]]:
        """Return seconds in exchanges, until the slowest rank's branches are done and have come."""
        return self._bubble

    # --- evidence: of the whole network, on every rank ----------------------------

    def gradients(self) -> Arrays:
        return self._whole({name: tensor.grad for name, tensor in self._net.trainable()})

    def parameters(self) -> Arrays:
        return self._whole(dict(self._net.tensors()))

    def parameter_count(self) -> int:
        return self._counted(lambda net, entering: sum(parameter.numel() for parameter in net.parameters()))

    def macs(self) -> int:
        def count(net: Net, entering: Sequence[str]) -> int:
            return counted_macs(net, *blank(self._graph, entering, 1, self._dtype, self._device))

        return self._counted(count)

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("a rank has some of the branches and waits for the others within the network")

    def notes(self) -> Notes:
        owners = "; ".join(", ".join(map(str, block.owners)) for block in self._cut)
        return dict(super().notes(), branch_parallel=f"ranks of every block's branches: {owners}")

    # --- what ReplicaTrainer.build asks for -----------------------------------------

    def _network(self, graph: Graph, weights: Arrays) -> "BranchNet":
        """Make a network; one without blocks stays whole, and plans refuse it (`Strategy.cut`)."""
        setup = self.setup
        self._cut = blocks(graph, setup.world)
        branches = [branch for block in self._cut for branch in block.branches]
        owners = [owner for block in self._cut for owner in block.owners]
        self._gather = Gather(graph, branches, owners, self.group.pipeline(setup.world, "gloo"), self._dtype)
        self._exchange = BlockExchange(setup.rank, self._crosses, self._layout)
        shapes = shapes_of(graph)
        made = sum(size(shapes[branch.leaving[0]]) for branch in branches)
        summed = sum(size(shapes[block.branches[0].entering[0]]) for block in self._cut)
        self._exchanged_bytes = int((made / setup.world + summed) * setup.batch * self._crosses.itemsize)
        return BranchNet(graph, self._cut, setup.rank, weights, setup.tuned, self._exchange, self._ways)

    def _norm(self, gradients: List[Tensor]) -> Tensor:
        """Return the norm over all ranks; the trunk, which all have, counts on the first."""
        branches = {name for net, _ in self._net.branches for name, _ in net.tensors()}
        own = [each.grad for name, each in self._net.trainable() if name in branches or self.setup.rank == 0]
        return joint_norm(own, self._device)

    def _whole(self, mine: Dict[str, Tensor]) -> Arrays:
        """Return this rank's own copy of what all have, and every rank's branches."""
        branches = {name for net, _ in self._net.branches for name, _ in net.tensors()}
        found = {name: to_numpy(tensor) for name, tensor in mine.items() if name not in branches}
        found.update(self._gather.tensors({name: mine[name] for name in mine if name in branches}))
        return found

    def _counted(self, count: Callable[[Net, Sequence[str]], int]) -> int:
        """Add up the trunk's count, once, and those of every rank's branches."""
        shared = sum(count(*part) for part in self._net.trunk)
        return shared + int(self._gather.total(sum(count(*part) for part in self._net.branches)))

    def _release(self) -> None:
        self._exchange = self._gather = None
        super()._release()


class BlockExchange:
    """The exchanges at a block's two ends, and the seconds that this rank waits there."""

    def __init__(self, rank: int, crosses: torch.dtype, layout: Any) -> None:
        """Values cross in the type `crosses`; images have the memory format `layout`."""
        self._rank = rank
        self._crosses = crosses
        self._layout = layout
        self._waited: Optional[float] = None  # seconds, if they are counted

    def entering(self, value: Tensor) -> Tensor:
        """Return the common input for this rank's branches: what flows back to it is summed over all ranks."""
        entered = value.view_as(value)
        if entered.requires_grad:
            entered.register_hook(self._summed)
        return entered

    def leaving(self, mine: Sequence[Tensor], owners: Sequence[int], shapes: Sequence[Shape]) -> List[Tensor]:
        """Return all branches' outputs, on every rank.

        Back flows to each rank what is its own, the same as without a cut.
        """
        own = iter(mine)
        options = {"dtype": self._crosses, "device": mine[0].device}
        values: List[Tensor] = []
        for owner, shape in zip(owners, shapes):
            layout = self._layout_of(1 + len(shape))
            if owner == self._rank:
                values.append(next(own).to(self._crosses).contiguous(memory_format=layout))
            else:
                values.append(torch.empty((len(mine[0]), *shape), memory_format=layout, **options))
        self._settle([dist.broadcast(flat(value), owner, async_op=True) for value, owner in zip(values, owners)])
        return values

    def begin(self) -> None:
        """Count the waiting from now on; on a GPU that waits for the device at every exchange."""
        self._waited = 0.0

    def end(self) -> float:
        """Return the seconds since `begin`, the exchanges themselves among them."""
        assert self._waited is not None, "begin comes first"
        waited = self._waited
        self._waited = None
        return waited

    def _summed(self, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=self._layout_of(gradient.dim()))
        self._settle([dist.all_reduce(flat(total), async_op=True)])
        return total

    def _layout_of(self, dimensions: int) -> Any:
        """Return the order of numbers, equal on all ranks."""
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
        weights: Arrays,
        fast: bool,
        exchange: BlockExchange,
        ways: Ways,
    ) -> None:
        """KeyError names a weight that is missing."""
        super().__init__()
        self._cut = cut
        self._exchange = exchange
        self._shapes = shapes_of(graph)
        self._trunk_stages = trunk(graph, cut)
        self._nets = nn.ModuleList()
        self.trunk: List[Part] = []
        self.branches: List[Part] = []  # this rank's own
        self._own: List[List[Net]] = []  # by block

        made: Dict[str, nn.Module] = {}

        def part(stage: Any) -> Part:
            net = Net(graph, weights, fast, stage, ways, made)
            self._nets.append(net)
            return net, stage.entering

        for stage in self._trunk_stages:
            self.trunk.append(part(stage))
        for block in cut:
            own = [part(stage) for stage, owner in zip(*block) if owner == rank]
            self.branches += own
            self._own.append([net for net, _ in own])

    def forward(self, inputs: Tensor) -> Heads:
        """Return the heads, on every rank, for images (samples, channels, height, width) or tokens."""
        values: Dict[str, Tensor] = {"input": inputs}
        for (net, _), stage, block, branches in zip(self.trunk, self._trunk_stages, self._cut, self._own):
            values = dict(zip(stage.leaving, net(*[values[name] for name in stage.entering])))
            leaving = [name for branch in block.branches for name in branch.leaving]
            entering = self._exchange.entering(values[block.branches[0].entering[0]])
            mine = [branch(entering)[0] for branch in branches]
            shapes = [self._shapes[name] for name in leaving]
            values.update(zip(leaving, self._exchange.leaving(mine, block.owners, shapes)))
        last, _ = self.trunk[-1]
        return last(*[values[name] for name in self._trunk_stages[-1].entering])  # type: ignore[no-any-return]

    def trainable(self) -> Named:
        """Yield the parameters of the trunk and of this rank's branches."""
        return ((name, tensor) for name, tensor in self.tensors() if isinstance(tensor, nn.Parameter))

    def tensors(self) -> Iterator[Tuple[str, Tensor]]:
        """Yield the tensors of the trunk and of this rank's branches, running statistics among them."""
        for net in self._nets:
            yield from net.tensors()


def flat(value: Tensor) -> Tensor:
    """Return a dense tensor's numbers in a row, as in memory: what a collective call takes whatever the format."""
    return value.detach().as_strided((value.numel(),), (1,))
