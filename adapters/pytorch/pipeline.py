"""`pipeline`: the ranks hold the network together, each the layers of a part.

Oldest Python: 3.6.
"""

import functools
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from adapters.pytorch.base import Base, to_numpy
from adapters.pytorch.cuts import parts_of
from adapters.pytorch.gather import Gather
from adapters.pytorch.net import joint_loss
from adapters.pytorch.parts import Neighbours, Part
from adapters.pytorch.solvers import solver
from adapters.pytorch.staged_pipeline import Staged
from adapters.pytorch.whole import counted_macs
from suite.worker.contract import Setup
from workloads.graph import Graph

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class PipelineTrainer(Base):
    """torch.distributed.pipelining runs the native step; the staged one takes all forwards first."""

    def __init__(self, setup: Setup) -> None:
        """Ranks in a row hold the network's parts in order."""
        super().__init__(setup)
        self._count = int(setup.knobs.get("microbatches", 4))
        self._asked = setup.knobs.get("schedule", "gpipe")
        self._index = setup.rank % setup.parts
        self._first, self._last = self._index == 0, self._index == setup.parts - 1
        self.places_images = self._first
        self._line = list(range(setup.rank - self._index, setup.rank - self._index + setup.parts))
        self._part: Any = None
        self._native: Any = None
        self._staged: Optional[Staged] = None
        self._neighbours: Optional[Neighbours] = None
        self._gather: Optional[Gather] = None
        self._optimiser: Any = None

    # --- life ---------------------------------------------------------------

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower this rank's part; a second call starts afresh."""
        assert self._group is not None
        self._prepare(graph)
        pieces = parts_of(graph, self.setup.parts)
        self._borders = [piece.begin for piece in pieces]
        part = Part(graph, pieces[self._index], weights, self._tuned)
        self._part = part.place(self._device, self._dtype, self._layout, self.setup.precision)
        self._neighbours = Neighbours(part, self._line, self._index, self._device)
        self._loss_of = functools.partial(loss_of, self._shares)
        self._staged = Staged(self._part, self._neighbours, self._count, self._loss_of)
        self._optimiser = solver(list(part.parameters()), self.setup.optimiser, self._fused)
        self._gather = Gather(graph, pieces, self._line, self._group.line(self.setup.parts), self._dtype)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """Every piece of the batch through this part, one after the other."""
        assert self._staged is not None
        self._staged.forward(batch)
        self._loss = self._staged.loss

    def backward(self) -> None:
        """Every piece back."""
        assert self._staged is not None
        self._staged.backward()

    def communicate(self) -> None:
        """One network: its gradients are whole."""

    def update(self) -> None:
        """Of this part; the gradients are let go."""
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def bubble(self) -> Optional[Dict[str, float]]:
        """Seconds in receives, and until what was sent had been taken: on a slow link mostly the transfer itself."""
        assert self._staged is not None
        return dict(self._staged.waited)

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """The schedule's."""
        if self._native is None:
            self._native = self._scheduled(batch)
        losses: List[torch.Tensor] = []
        given = [batch.images] if self._first else []
        options = {"target": batch.labels, "losses": losses} if self._last else {}
        self._native.step(*given, return_outputs=False, **options)
        self.update()
        self._loss = torch.stack([loss.detach() for loss in losses]).mean() if losses else None

    # --- evidence: of the whole network, on every rank --------------------------

    def loss(self) -> float:
        """The last part's."""
        assert self._gather is not None
        return float(self._gather.from_last(np.array(float(self._loss) if self._last else 0.0)))

    def logits(self) -> np.ndarray:
        """The last part's."""
        assert self._gather is not None
        assert self._staged is not None
        return self._gather.from_last(to_numpy(self._staged.logits()) if self._last else None)

    def predict(self, batch: Any) -> np.ndarray:
        """The batch as one piece, with dropout off and running statistics."""
        assert self._gather is not None
        assert self._staged is not None
        self._part.eval()
        with torch.no_grad():
            heads = self._staged.passed(batch.images, len(batch.labels))
        self._part.train()
        return self._gather.from_last(to_numpy(heads[-1]) if self._last else None)

    def gradients(self) -> Dict[str, np.ndarray]:
        """Every part's."""
        assert self._gather is not None
        return self._gather.tensors({name: tensor.grad for name, tensor in self._part.net.trainable()})

    def parameters(self) -> Dict[str, np.ndarray]:
        """Every part's."""
        assert self._gather is not None
        return self._gather.tensors(dict(self._part.net.tensors()))

    def parameter_count(self) -> int:
        """Summed up over the parts."""
        assert self._gather is not None
        return self._gather.total(sum(parameter.numel() for parameter in self._part.parameters()))

    def macs(self) -> int:
        """Summed up over the parts."""
        assert self._gather is not None
        options = {"dtype": self._part.crosses, "device": self._device}
        samples = [torch.zeros((1,) + tuple(shape), **options) for shape in self._part.enters]
        return self._gather.total(counted_macs(self._part, *samples))

    def notes(self) -> Dict[str, Any]:
        """Where it was cut, how it is run."""
        name = SCHEDULES[self._asked].__name__
        about = {"schedule": name, "microbatches": self._count, "parts begin at": self._borders}
        about["staged"] = "every forward before the first backward"
        about["bubble"] = "waiting for the neighbours, the transfer of what crosses included"
        return dict(super().notes(), pipeline=about)

    # --- for the subclass -------------------------------------------------------

    def _module(self) -> Any:
        """What the native schedule runs."""
        return self._part

    def _scheduled(self, batch: Any) -> Any:
        samples, part = len(batch.labels) // self._count, self._part
        options = {"dtype": part.crosses, "device": "meta"}
        entering = [torch.empty((samples,) + tuple(shape), **options) for shape in part.enters]
        leaving = [torch.empty((samples,) + tuple(shape), **options) for shape in part.leaves]
        if not self._first:
            entering = [value.requires_grad_() for value in entering]
        stage = PipelineStage(
            self._module(),
            self._index,
            self.setup.parts,
            self._device,
            # Told, not tried out: a trial would move the running statistics.
            input_args=tuple(entering),
            output_args=tuple(value.requires_grad_() for value in leaving),
            group=self._pipe(),
        )
        return SCHEDULES[self._asked](stage, self._count, loss_fn=self._loss_of)

    def _pipe(self) -> Any:
        assert self._group is not None
        return self._group.pipe(self.setup.parts)

    def _release(self) -> None:
        self._part = self._native = self._staged = self._neighbours = self._optimiser = None
        self._gather = None
        super()._release()


def loss_of(shares: List[float], heads: Any, labels: torch.Tensor) -> torch.Tensor:
    """The joint loss; a schedule hands on a single head as it is."""
    return joint_loss([heads] if isinstance(heads, torch.Tensor) else list(heads), shares, labels)
