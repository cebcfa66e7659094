"""`pipeline`: the ranks hold the network together, each the layers of a stage."""

import functools
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from adapters.pytorch.base import TorchTrainer, to_numpy
from adapters.pytorch.net import joint_loss
from adapters.pytorch.optimisers import make_optimiser
from adapters.pytorch.replica import counted_macs
from adapters.pytorch.stages import Gather, Neighbours, StagedSchedule, StageNet
from suite.worker.contract import Batch, LayerTimes, Setup, Unsupported
from suite.worker.messages import Kernels
from suite.worker.pipeline_stages import exchanged_bytes, stages
from workloads.graph import Graph

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Pipeline(TorchTrainer):
    """torch.distributed.pipelining runs the native step; the staged one takes all forwards first."""

    # Set by `build`.
    _stage: Any = None
    _staged: Any = None
    _native: Any = None  # the schedule of a step
    _gather: Any = None
    _exchanged_bytes = 0  # what a rank contributes to the exchanges of a step, the mean over ranks

    def __init__(self, setup: Setup) -> None:
        """Ranks in a row hold the network's stages in order."""
        super().__init__(setup)
        self._count = int(setup.knobs["microbatches"])
        self._schedule = SCHEDULES[setup.knobs["schedule"]]
        self._index = setup.rank % setup.model_parallel_size
        self._first, self._last = self._index == 0, self._index == setup.model_parallel_size - 1
        self.places_images = self._first
        self._ranks = list(range(setup.rank - self._index, setup.rank - self._index + setup.model_parallel_size))

    # --- life ---------------------------------------------------------------

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower this rank's stage; a second call starts afresh."""
        self._begin_build(graph)
        # A cut where one value crosses: a pooled value rather than what it was pooled from.
        cut = stages(graph, self.setup.model_parallel_size, one_value=True)
        self._borders = [stage.begin for stage in cut]
        self._exchanged_bytes = exchanged_bytes(graph, cut, self.setup.batch, self._crosses.itemsize)
        self._stage = StageNet(graph, cut[self._index], weights, self.setup.tuned, self._ways)
        self._stage.place(self._device, self._dtype, self._layout, self.setup.precision)
        self._loss_of = functools.partial(loss_of, self._head_weights)
        neighbours = Neighbours(self._stage, self._ranks, self._index, self._device)
        self._staged = StagedSchedule(self._stage, neighbours, self._count, self._loss_of)
        self._optimiser = make_optimiser(list(self._stage.parameters()), self.setup.optimiser, self._fused)
        self._gather = Gather(
            graph, cut, self._ranks, self.group.pipeline_on_hosts(self.setup.model_parallel_size), self._dtype
        )

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        self._staged.forward(batch)
        self._loss = self._staged.loss

    def backward(self) -> None:
        self._staged.backward()

    def bubble(self) -> Optional[Dict[str, float]]:
        """Seconds in receives, and until what was sent had been taken: on a slow link mostly the transfer itself."""
        return dict(self._staged.waited)

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Batch) -> None:
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
        return float(self._gather.from_last(np.array(float(self._loss) if self._last else 0.0)))

    def logits(self) -> np.ndarray:
        return self._gather.from_last(to_numpy(self._staged.logits()) if self._last else None)

    def predict(self, batch: Batch) -> np.ndarray:
        """The batch in one, with dropout off and running statistics."""
        self._stage.eval()
        with torch.no_grad():
            heads = self._staged.predict(batch.images, len(batch.labels))
        self._stage.train()
        return self._gather.from_last(to_numpy(heads[-1]) if self._last else None)

    def gradients(self) -> Dict[str, np.ndarray]:
        return self._gather.tensors({name: tensor.grad for name, tensor in self._stage.net.trainable()})

    def parameters(self) -> Dict[str, np.ndarray]:
        return self._gather.tensors(dict(self._stage.net.tensors()))

    def parameter_count(self) -> int:
        return self._gather.total(sum(parameter.numel() for parameter in self._stage.parameters()))

    def macs(self) -> int:
        options = {"dtype": self._stage.crosses, "device": self._device}
        samples = [torch.zeros((1,) + tuple(shape), **options) for shape in self._stage.enters]
        return self._gather.total(counted_macs(self._stage, *samples))

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("a rank holds some of the layers, and the batch goes through them in pieces")

    def kernel_times(self, iteration: Callable[[Callable[[str], Any]], None], trace: str) -> Kernels:
        raise Unsupported("a rank's operators wait for its neighbours', and a wait is no work")

    def notes(self) -> Dict[str, Any]:
        about = {"schedule": self._schedule.__name__, "microbatches": self._count, "stages begin at": self._borders}
        about["staged"] = "every forward before the first backward"
        about["bubble"] = "waiting for the neighbours, the transfer of what crosses included"
        return dict(super().notes(), pipeline=about, exchanged_bytes=self._exchanged_bytes)

    # --- for the subclass -------------------------------------------------------

    def _samples_at_once(self) -> int:
        return super()._samples_at_once() // self._count

    def _module(self) -> Any:
        return self._stage

    def _scheduled(self, batch: Batch) -> Any:
        samples, stage = len(batch.labels) // self._count, self._stage
        options = {"dtype": stage.crosses, "device": "meta"}
        entering = [torch.empty((samples,) + tuple(shape), **options) for shape in stage.enters]
        leaving = [torch.empty((samples,) + tuple(shape), **options) for shape in stage.leaves]
        if not self._first:
            entering = [value.requires_grad_() for value in entering]
        native = PipelineStage(
            self._module(),
            self._index,
            self.setup.model_parallel_size,
            self._device,
            # Given, not tried out: a trial would move the running statistics.
            input_args=tuple(entering),
            output_args=tuple(value.requires_grad_() for value in leaving),
            group=self.group.pipeline(self.setup.model_parallel_size),
        )
        return self._schedule(native, self._count, loss_fn=self._loss_of)

    def _release(self) -> None:
        self._stage = self._staged = self._native = self._gather = None
        super()._release()


def loss_of(head_weights: List[float], heads: Any, labels: torch.Tensor) -> torch.Tensor:
    """The joint loss; a schedule hands on a single head as it is."""
    return joint_loss([heads] if isinstance(heads, torch.Tensor) else list(heads), head_weights, labels)
