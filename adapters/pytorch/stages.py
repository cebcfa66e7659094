"""A stage of a network that several ranks hold together, and its exchanges with the other stages."""

import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stagebench.adapters.pytorch.base import to_numpy
from stagebench.adapters.pytorch.machine import MIXED
from stagebench.adapters.pytorch.net import Heads, Net, shapes_of
from stagebench.adapters.pytorch.optimisers import norm_of
from stagebench.adapters.pytorch.replica import microbatches
from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.pipeline_stages import Stage
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph, Shape

Values = Sequence[Tensor]  # (samples, ...) each, of the layers at a stage's border
Tied = Sequence[Tuple[Tensor, Any]]  # weights, with the groups of ranks that compute with them


class StageNet(nn.Module):
    """A stage of a graph between ranks: what enters and leaves is contiguous, of one type."""

    def __init__(self, net: Net, graph: Graph, stage: Stage, layout: Any, crosses: torch.dtype) -> None:
        """Values cross in the type `crosses`; layers compute in it if it is a narrow one, else as `net` is stored."""
        super().__init__()
        self.net = net
        self.crosses = crosses
        self._layout = layout
        shapes = shapes_of(graph)
        self.enters = [shapes[name] for name in stage.entering]
        self.leaves = [shapes[name] for name in stage.leaving]
        self._inner = stage.end < len(graph.layers)

    def forward(self, *entering: Tensor) -> Tuple[Tensor, ...]:
        """Return the values that leave; the last stage's are the heads' logits."""
        placed = [value.to(memory_format=self._layout) if value.dim() == 4 else value for value in entering]
        narrow = self.crosses if self.crosses in MIXED.values() else None
        with torch.autocast(entering[0].device.type, dtype=narrow, enabled=narrow is not None):
            leaving = self.net(*placed)
        if not self._inner:
            return tuple(leaving)
        return tuple(value.to(self.crosses).contiguous() for value in leaving)


def sum_tied(tied: Tied) -> List[Any]:
    """Begin to sum up the gradients of tied weights, as Megatron-LM does: each rank then updates its copy alike."""
    return [(dist.all_reduce(weight.grad, group=group, async_op=True), weight) for weight, group in tied]


def joint_norm(own: Sequence[Tensor], device: torch.device, group: Any = None) -> Tensor:
    """Return the norm of the gradients of which each rank brings its own; a collective call."""
    square = norm_of(own).square().to(device)
    dist.all_reduce(square, group=group)
    return square.sqrt()


class StagedSchedule:
    """A pipeline's forward and backward, one after the other, and the seconds that each waits for its neighbours.

    torch's schedules do not stop between them. GPipe's order is the one that does: it idles as long as 1F1B's.
    """

    def __init__(
        self,
        parts: Sequence[StageNet],
        tied: Tied,
        ranks: Sequence[int],
        index: int,
        device: torch.device,
        count: int,
        loss_of: Callable[[Heads, Tensor], Tensor],
    ) -> None:
        """`ranks` hold the stages, in order, one after the other in turns; `parts` are those of the one at `index`.

        `count` microbatches. What goes from the last rank to the first, and back, is sent after its turn: both wait for
        what they send before they receive, on GPUs, and within a turn they would wait for each other.
        """
        own = [place for place in range(len(ranks)) if ranks[place] == ranks[index]]
        self._rank = ranks[index]
        around: List[Any] = [None, *ranks, None]
        self._parts = [(part, around[place], around[place + 2]) for part, place in zip(parts, own)]
        self._tied = tied
        self._device = device
        self._count = count
        self._loss_of = loss_of
        self._crossed: List[List[Tuple[Values, Values]]] = []  # by part and microbatch: what entered and left
        self._sent: List[Any] = []
        self._waited = 0.0
        self._answers: List[Tensor] = []
        self._losses: List[Tensor] = []
        self.loss: Any = None  # on the last rank
        self.waited: Dict[str, float] = {}  # seconds of the last forward and backward

    def forward(self, batch: Batch) -> None:
        """Take every microbatch through each of this rank's stages."""
        self._crossed = []
        self._losses = []
        self._answers = []
        self._waited = 0.0
        for part, before, after in self._parts:
            self._crossed.append([])
            around = []
            for piece in microbatches(batch, self._count):
                entering = self._entering(part, before, piece, learning=True)
                leaving = part(*entering)
                self._crossed[-1].append((entering, leaving))
                if after is None:
                    self._losses.append(self._loss_of(leaving, piece.labels) / self._count)
                    self._answers.append(leaving[-1].detach())
                elif after < self._rank:
                    around.append(leaving)
                else:
                    self._send(part, after, leaving)
            for leaving in around:
                self._send(part, after, leaving)
        self._settle()
        self.loss = torch.stack([loss.detach() for loss in self._losses]).sum() if self._losses else None
        self.waited = {"forward": self._waited}

    def backward(self) -> None:
        """Take every microbatch back; autograd adds up their gradients."""
        self._waited = 0.0
        for (part, before, after), crossed in zip(reversed(self._parts), reversed(self._crossed)):
            around = []
            for index, (entering, leaving) in enumerate(crossed):
                if after is None:
                    self._losses[index].backward()
                else:
                    gradients = self._received(part, after, part.leaves, len(leaving[0]))
                    torch.autograd.backward(leaving, gradients)
                if before is not None and before > self._rank:
                    around.append([value.grad for value in entering])
                elif before is not None:
                    self._send(part, before, [value.grad for value in entering])
            for gradients in around:
                self._send(part, before, gradients)
        self._sent += sum_tied(self._tied)
        self._settle()
        self._crossed = []
        self._losses = []
        self.waited["backward"] = self._waited

    def predict(self, batch: Batch) -> Values:
        """Take a whole batch through this rank's stages; return what left the last, on the last rank the logits."""
        leaving: Values = []
        for part, before, after in self._parts:
            leaving = part(*self._entering(part, before, batch, learning=False))
            if after is not None:
                self._send(part, after, leaving)
        self._settle()
        return leaving

    def logits(self) -> Tensor:
        """Return the last head's logits, microbatch after microbatch; on the last rank."""
        return torch.cat(self._answers)

    def _entering(self, part: StageNet, before: Any, batch: Batch, learning: bool) -> Values:
        if before is None:
            return [batch.inputs]
        values = self._received(part, before, part.enters, len(batch.labels))
        return [value.requires_grad_(learning) for value in values]

    def _send(self, part: StageNet, rank: int, values: Values) -> None:
        """Begin to send to the stage before or after."""
        kept = [value.detach().to(part.crosses).contiguous() for value in values]
        self._sent += [(dist.isend(value, rank), value) for value in kept]

    def _received(self, part: StageNet, rank: Any, shapes: List[Shape], samples: int) -> Values:
        self._synchronize()  # what is still computed here is no waiting
        begin = time.perf_counter()
        options = {"dtype": part.crosses, "device": self._device}
        values = [torch.empty((samples, *shape), **options) for shape in shapes]
        for work in [dist.irecv(value, rank) for value in values]:
            work.wait()
        self._synchronize()
        self._waited += time.perf_counter() - begin
        return values

    def _settle(self) -> None:
        """Wait until all has been sent."""
        begin = time.perf_counter()
        for work, _ in self._sent:
            work.wait()
        self._synchronize()
        self._sent = []
        self._waited += time.perf_counter() - begin

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class Gather:
    """The gathering of a network's parts on all of its ranks: collective calls, over host memory."""

    def __init__(
        self, graph: Graph, stages: Sequence[Stage], ranks: Sequence[int], group: Any, dtype: torch.dtype
    ) -> None:
        """`ranks` hold the stages, in their order; `group` is all of the network's ranks, over gloo."""
        self._ranks = ranks
        self._group = group
        self._dtype = dtype
        self._shapes: Dict[str, Shape] = {}
        self._owners: Dict[str, int] = {}
        for stage, rank in zip(stages, ranks):
            for layer in graph.layers[stage.begin : stage.end]:
                held = [*((parameter.name, parameter.shape) for parameter in layer.parameters), *layer.buffers]
                self._shapes.update(held)
                self._owners.update((name, rank) for name, _ in held)

    def tensors(self, mine: Dict[str, Any]) -> Arrays:
        """Return every stage's tensors, of the names that the ranks bring, each from the rank that has the layer."""
        names: List[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(names, sorted(mine), group=self._group)
        found: Arrays = {}
        for name in dict.fromkeys(name for some in names for name in some):
            if name in mine:
                values = torch.from_numpy(to_numpy(mine[name]))
            else:
                values = torch.empty(self._shapes[name], dtype=self._dtype)
            dist.broadcast(values, self._owners[name], group=self._group)
            found[name] = values.numpy()
        return found

    def from_last(self, value: Any) -> Any:
        """Return the last stage's value, on all ranks."""
        cell = [value]
        dist.broadcast_object_list(cell, self._ranks[-1], group=self._group)
        return cell[0]

    def total(self, number: int) -> int:
        cell = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(cell, group=self._group)
        return int(cell.item())
