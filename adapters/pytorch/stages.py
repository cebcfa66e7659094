"""A stage of a network that several ranks hold together, and its exchanges with the other stages."""

import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from adapters.pytorch.base import to_numpy
from adapters.pytorch.net import Net
from adapters.pytorch.replica import microbatches
from suite.worker.contract import Batch
from suite.worker.pipeline_stages import Stage
from workloads.graph import Graph


class StageNet(nn.Module):
    """A stage of a graph between ranks: what enters and leaves is contiguous, of one type."""

    def __init__(
        self, graph: Graph, stage: Stage, weights: Dict[str, np.ndarray], fast: bool, ways: Dict[str, str]
    ) -> None:
        super().__init__()
        self.net = Net(graph, weights, fast, stage, ways)
        shapes = dict({layer.name: layer.shape for layer in graph.layers}, input=graph.input_shape)
        self.enters = [shapes[name] for name in stage.entering]
        self.leaves = [shapes[name] for name in stage.leaving]
        self._inner = stage.end < len(graph.layers)

    def place(self, device: Any, dtype: Any, layout: Any, precision: str) -> "StageNet":
        """Move to a device; values cross in the precision's type, layers compute in it."""
        self.net.to(device, dtype, memory_format=layout).train()
        self._layout, self._mixed = layout, precision == "bfloat16"
        self.crosses = torch.bfloat16 if self._mixed else dtype
        return self

    def forward(self, *entering: torch.Tensor) -> Any:
        """The values that leave, a tuple; the last stage's are the heads' logits."""
        placed = [value.to(memory_format=self._layout) if value.dim() == 4 else value for value in entering]
        with torch.autocast(entering[0].device.type, dtype=torch.bfloat16, enabled=self._mixed):
            leaving = self.net(*placed)
        if not self._inner:
            return tuple(leaving)
        return tuple(value.to(self.crosses).contiguous() for value in leaving)


class Neighbours:
    """The ranks that hold the stages before and after this one; counts the seconds that it waits for them."""

    def __init__(self, stage: StageNet, ranks: Sequence[int], index: int, device: Any) -> None:
        """`ranks` hold the stages, in order; this is the one at `index`."""
        self._stage, self._device = stage, device
        self.before = ranks[index - 1] if index else None
        self.after = ranks[index + 1] if index + 1 < len(ranks) else None
        self._sent: List[Any] = []
        self.waited = 0.0

    def entering(self, samples: int) -> List[torch.Tensor]:
        """Values of the stage before."""
        return self._received(self.before, self._stage.enters, samples)

    def leaving(self, samples: int) -> List[torch.Tensor]:
        """Gradients of what left, from the stage after."""
        return self._received(self.after, self._stage.leaves, samples)

    def send(self, rank: Any, values: Sequence[torch.Tensor]) -> None:
        """Begin to send to the stage before or after."""
        kept = [value.detach().to(self._stage.crosses).contiguous() for value in values]
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
        options = {"dtype": self._stage.crosses, "device": self._device}
        values = [torch.empty((samples,) + tuple(shape), **options) for shape in shapes]
        for work in [dist.irecv(value, rank) for value in values]:
            work.wait()
        self._synchronize()
        self.waited += time.perf_counter() - begin
        return values

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


class StagedSchedule:
    """A pipeline's forward and backward, one after the other, and what each waits for its neighbours.

    torch's schedules do not stop between them. GPipe's order is the one that does: it idles as long as 1F1B's.
    """

    def __init__(
        self, stage: StageNet, neighbours: Neighbours, count: int, loss_of: Callable[..., torch.Tensor]
    ) -> None:
        """`count` microbatches; `loss_of` takes the heads and the labels of one."""
        self._stage, self._neighbours, self._count, self._loss_of = stage, neighbours, count, loss_of
        self._crossed: List[Tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]] = []
        self._answers: List[torch.Tensor] = []
        self._losses: List[torch.Tensor] = []
        self.loss: Any = None  # on the last rank
        self.waited: Dict[str, float] = {}  # seconds of the last forward and backward

    def forward(self, batch: Batch) -> None:
        """Every microbatch through this stage."""
        self._crossed, self._losses, self._answers, self._neighbours.waited = [], [], [], 0.0
        for images, labels in microbatches(batch, self._count):
            entering = self._entering(images, len(labels), learning=True)
            leaving = self._stage(*entering)
            self._crossed.append((entering, leaving))
            if self._neighbours.after is None:
                self._losses.append(self._loss_of(leaving, labels) / self._count)
                self._answers.append(leaving[-1].detach())
            else:
                self._neighbours.send(self._neighbours.after, leaving)
        self._neighbours.settle()
        self.loss = torch.stack([loss.detach() for loss in self._losses]).sum() if self._losses else None
        self.waited = {"forward": self._neighbours.waited}

    def backward(self) -> None:
        """Every microbatch back; autograd adds up their gradients."""
        self._neighbours.waited = 0.0
        for index, (entering, leaving) in enumerate(self._crossed):
            if self._losses:
                self._losses[index].backward()
            else:
                torch.autograd.backward(leaving, self._neighbours.leaving(len(leaving[0])))
            if self._neighbours.before is not None:
                self._neighbours.send(self._neighbours.before, [value.grad for value in entering])
        self._neighbours.settle()
        self._crossed, self._losses = [], []
        self.waited["backward"] = self._neighbours.waited

    def predict(self, images: Any, samples: int) -> Sequence[torch.Tensor]:
        """A whole batch through this stage and on to the next; returns what left, on the last rank the logits."""
        leaving = self._stage(*self._entering(images, samples, learning=False))
        if self._neighbours.after is not None:
            self._neighbours.send(self._neighbours.after, leaving)
            self._neighbours.settle()
        return leaving

    def logits(self) -> torch.Tensor:
        """Return the last head's logits, microbatch after microbatch; on the last rank."""
        return torch.cat(self._answers)

    def _entering(self, images: Any, samples: int, learning: bool) -> List[torch.Tensor]:
        if self._neighbours.before is None:
            return [images]
        return [value.requires_grad_(learning) for value in self._neighbours.entering(samples)]


class Gather:
    """The gathering of a network's parts on all of its ranks: collective calls, over host memory."""

    def __init__(self, graph: Graph, stages: Sequence[Stage], ranks: Sequence[int], group: Any, dtype: Any) -> None:
        """`ranks` hold the stages, in their order; `group` is all of the network's ranks, over gloo."""
        self._ranks, self._group, self._dtype = list(ranks), group, dtype
        self._shapes: Dict[str, Any] = {}
        self._owners: Dict[str, int] = {}
        for stage, rank in zip(stages, ranks):
            for layer in graph.layers[stage.begin : stage.end]:
                found = [(each.name, each.shape) for each in layer.parameters] + list(layer.buffers)
                self._shapes.update(found)
                self._owners.update((name, rank) for name, _ in found)

    def tensors(self, mine: Dict[str, Any]) -> Dict[str, np.ndarray]:
        """Every stage's tensors, of the names that the ranks bring, each name by one of them."""
        names: List[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(names, sorted(mine), group=self._group)
        found: Dict[str, np.ndarray] = {}
        for name in (name for each in names for name in each):
            if name in mine:
                values = torch.from_numpy(to_numpy(mine[name]))
            else:
                values = torch.empty(tuple(self._shapes[name]), dtype=self._dtype)
            dist.broadcast(values, self._owners[name], group=self._group)
            found[name] = values.numpy()
        return found

    def from_last(self, value: Any) -> Any:
        """The last stage's array, on all."""
        cell = [value]
        dist.broadcast_object_list(cell, self._ranks[-1], group=self._group)
        return cell[0]

    def total(self, number: int) -> int:
        cell = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(cell, group=self._group)
        return int(cell.item())
