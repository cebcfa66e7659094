"""`pipeline_inference`: each rank holds a stage of the network; a query goes through all in microbatches."""

from collections import deque
from typing import Any, Deque, Iterator, List, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.base import to_numpy
from stagebench.adapters.pytorch.comm import ProcessGroup
from stagebench.adapters.pytorch.inference import TorchPredictor
from stagebench.adapters.pytorch.net import shapes_of
from stagebench.adapters.pytorch.stages import StageNet, Values
from stagebench.suite.worker.contract import Joined, Setup
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.pipeline_stages import stages
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class Query(NamedTuple):
    """A rank's part in a query."""

    exchanges: List[Any]  # under way
    values: List[Tensor]  # that they send or receive; on the first rank the last one is the answers


class PipelinePredictor(TorchPredictor):
    """A predictor of one network on several ranks: the first asks, and the last sends it the answers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._pieces = int(setup.knobs["microbatches"])
        self._first, self._last = setup.rank == 0, setup.rank == setup.world - 1

    def start(self) -> Joined:
        joined = super().start()
        self.group = ProcessGroup(self.setup)
        return joined._replace(rank=self.group.rank, world=self.group.world, transport=self.group.transport)

    def load(self, graph: Graph, tensors: Arrays) -> None:
        setup = self.setup
        own, tensors = self._begin_load(graph, tensors)
        cut = stages(own, setup.world, one_value=True)
        stage = cut[setup.rank]
        net = self._lowered(own, tensors, stage, self._pieces)
        self._run = StageNet(net, own, stage, self._layout, machine.multiplied(setup.precision))
        self._borders = [each.begin for each in cut]
        self._answer = shapes_of(own)[own.heads[-1].layer]
        # Logits cross in host memory, where they are wanted: between GPUs, a way back through NCCL could wait for the
        # way there, and that for it.
        self._back = self.group.pipeline(setup.world, "gloo")
        # The last query of a load is never fetched: its exchanges are kept until later ones have followed them.
        self._kept: Deque[Query] = deque(maxlen=2)

    def place(self, inputs: np.ndarray) -> Any:
        """Return the samples; on other ranks than the first their number."""
        return super().place(inputs) if self._first else len(inputs)

    def run(self, placed: Any) -> Query:
        query = Query([], [])
        self._kept.append(query)
        answers = []
        for entering in self._entering(placed):
            leaving = self._run(*entering)
            if self._last:
                answers.append(leaving[-1])
                continue
            query.values.extend(leaving)
            query.exchanges.extend(dist.isend(value, self.setup.rank + 1) for value in leaving)
        if self._last:
            self._exchange(query, dist.isend, torch.from_numpy(to_numpy(torch.cat(answers))), 0)
        if self._first:
            shape = (len(placed), *self._answer)
            self._exchange(query, dist.irecv, torch.empty(shape, dtype=self._dtype), self.setup.world - 1)
        return query

    def fetch(self, found: Query) -> np.ndarray:
        for exchange in found.exchanges:
            exchange.wait()
        return found.values[-1].numpy() if self._first else np.empty(0)

    def close(self) -> None:
        self._run = self._back = None
        self._kept.clear()
        super().close()

    def notes(self) -> Notes:
        about = {"microbatches": self._pieces, "stages begin at": self._borders}
        return dict(super().notes(), pipeline=about)

    def _entering(self, placed: Any) -> Iterator[Values]:
        """Yield what enters this rank's stage, microbatch after microbatch; of fewer samples each is one."""
        samples = len(placed) if self._first else placed
        pieces = min(self._pieces, samples)
        sizes = [(samples + at) // pieces for at in range(pieces)]
        if self._first:
            yield from ([piece] for piece in placed.split(sizes))
            return
        for size in sizes:
            values = [
                torch.empty((size, *shape), dtype=self._run.crosses, device=self._device) for shape in self._run.enters
            ]
            for exchange in [dist.irecv(value, self.setup.rank - 1) for value in values]:
                exchange.wait()
            yield values

    def _exchange(self, query: Query, way: Any, answers: Tensor, rank: int) -> None:
        query.values.append(answers)
        query.exchanges.append(way(answers, rank, group=self._back))
