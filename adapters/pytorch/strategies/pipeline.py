"""`pipeline`: the ranks hold the network together, each the layers of a stage or several; `hybrid`: side by side."""

from functools import partial
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from stagebench.adapters.pytorch.base import TorchTrainer, to_numpy
from stagebench.adapters.pytorch.exchange import Averaging, Exchange
from stagebench.adapters.pytorch.net import Named, Net, blank, counted_macs, joint_loss
from stagebench.adapters.pytorch.optimisers import make_optimiser
from stagebench.adapters.pytorch.stages import Gather, StagedSchedule, StageNet, joint_norm, sum_tied
from stagebench.adapters.pytorch.strategies.ddp import wrap
from stagebench.suite.worker.contract import Batch, LayerTimes, Setup, Unsupported
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.pipeline_stages import copies, exchanged_bytes, stages
from stagebench.suite.worker.trainer import Arrays, Iteration, Notes
from stagebench.workloads.graph import Graph

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


class Pipeline(TorchTrainer):
    """torch.distributed.pipelining runs the native step; the staged one takes all forwards first."""

    # Set by `build`.
    _parts: Any = None  # this rank's stages, in order
    _modules: Any = None  # what a native step runs: the stages in what a strategy wraps around them
    _staged: Any = None
    _native: Any = None  # the schedule of a step
    _gather: Any = None
    _exchanged_bytes = 0  # what a rank contributes to the exchanges of a step, the mean over ranks

    def __init__(self, setup: Setup) -> None:
        """Ranks in a row hold the network's stages in order; interleaved (Narayanan 2021), in several rounds."""
        super().__init__(setup)
        self.pieces = int(setup.knobs["microbatches"])
        schedule = setup.knobs["schedule"]
        self._schedule = SCHEDULES[schedule]
        self._held = setup.model_parallel_size  # ranks of a network
        self._chunks = int(setup.knobs["chunks"]) if schedule == "interleaved" else 1  # stages of a rank
        self._index = setup.rank % self._held
        self._last = self._index == self._held - 1
        self.places_inputs = self._index == 0

    # --- life ---------------------------------------------------------------

    def build(self, graph: Graph, weights: Arrays) -> None:
        """Lower this rank's stages; a second call starts afresh."""
        setup, held = self.setup, self._held
        self._begin_build(graph)
        # A cut where one value crosses: a pooled value rather than what it was pooled from.
        cut = stages(graph, held * self._chunks, one_value=True)
        self._borders = [stage.begin for stage in cut]
        self._exchanged_bytes = exchanged_bytes(graph, cut, setup.batch, self._crosses.itemsize) * self._chunks
        self._cuts = cut[self._index :: held]
        self._parts = nn.ModuleList()
        made: Dict[str, nn.Module] = {}
        for stage in self._cuts:
            net = Net(graph, weights, setup.tuned, stage, self._ways, made)
            net.to(self._device, self._dtype, memory_format=self._layout).train()
            self._parts.append(StageNet(net, graph, stage, self._layout, self._crosses))
        self._modules = list(self._parts)
        trainable = dict(self._trainable())
        tied = []
        for name, holders in copies(graph, cut, held).items():
            group = self.group.holders(held, holders)
            if name in trainable:
                tied.append((trainable[name], group))
            self._exchanged_bytes += weights[name].size * len(holders) * self._dtype.itemsize // held
        self._tied = tied  # with the groups of ranks that compute with them, too
        self._loss_of = partial(loss_of, self._head_weights)
        first = setup.rank - self._index
        ranks = list(range(first, first + held)) * self._chunks
        self._staged = StagedSchedule(self._parts, tied, ranks, self._index, self._device, self.pieces, self._loss_of)
        self._optimiser = make_optimiser(list(self._parts.parameters()), setup.optimiser, self._fused)
        self._gather = Gather(graph, cut, ranks, self.group.pipeline(held, "gloo"), self._dtype)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        self._staged.forward(batch)
        self._loss = self._staged.loss

    def backward(self) -> None:
        self._staged.backward()

    def bubble(self) -> Optional[Dict[str, float]]:
        """Return seconds in receives, and until what was sent was taken: on a slow link mostly the transfer itself."""
        return dict(self._staged.waited)

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Batch) -> None:
        if self._native is None:
            self._native = self._scheduled(len(batch.labels) // self.pieces)
        losses: List[Tensor] = []
        given = [batch.inputs] if self.places_inputs else []
        options = {"target": batch.labels, "losses": losses} if self._last else {}
        self._native.step(*given, return_outputs=False, **options)
        for work, _ in sum_tied(self._tied):
            work.wait()
        self.update()
        self._loss = torch.stack([loss.detach() for loss in losses]).mean() if losses else None

    # --- evidence: of the whole network, on every rank --------------------------

    def loss(self) -> float:
        return float(self._gather.from_last(np.array(float(self._loss) if self._last else 0.0)))

    def logits(self) -> np.ndarray:
        return self._gather.from_last(to_numpy(self._staged.logits()) if self._last else None)

    def predict(self, batch: Batch) -> np.ndarray:
        """Take the batch in one, with dropout off and running statistics."""
        self._parts.eval()
        with torch.no_grad():
            heads = self._staged.predict(batch)
        self._parts.train()
        return self._gather.from_last(to_numpy(heads[-1]) if self._last else None)

    def gradients(self) -> Arrays:
        return self._gather.tensors({name: tensor.grad for name, tensor in self._trainable()})

    def parameters(self) -> Arrays:
        return self._gather.tensors({name: tensor for part in self._parts for name, tensor in part.net.tensors()})

    def parameter_count(self) -> int:
        return self._gather.total(sum(tensor.numel() for _, tensor in self._trainable(own=True)))

    def macs(self) -> int:
        counted = 0
        for stage, part in zip(self._cuts, self._parts):
            counted += counted_macs(part, *blank(self._graph, stage.entering, 1, self._crosses, self._device))
        return self._gather.total(counted)

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        raise Unsupported("a rank holds some of the layers, and the batch goes through them in pieces")

    def kernel_times(self, iteration: Iteration, trace: str) -> Kernels:
        raise Unsupported("a rank's operators wait for its neighbours', and a wait is no work")

    def notes(self) -> Notes:
        about = {
            "schedule": self._schedule.__name__,
            "microbatches": self.pieces,
            "stages of a rank": self._chunks,
            "stages begin at": self._borders,
            "staged": "every forward before the first backward",
            "bubble": "waiting for the neighbours, the transfer of what crosses included",
        }
        return dict(super().notes(), pipeline=about, exchanged_bytes=self._exchanged_bytes)

    def _norm(self, gradients: List[Tensor]) -> Tensor:
        """Return the norm over all ranks; a tied weight counts on the rank that has its layer."""
        own = [tensor.grad for _, tensor in self._trainable(own=True)]
        return joint_norm(own, self._device, self.group.pipeline(self._held))

    def _trainable(self, own: bool = False) -> Named:
        """Yield the parameters of this rank's stages; with `own`, those of its layers alone, without copies."""
        nets = [part.net for part in self._parts]
        return ((name, each) for net in nets for name, each in net.trainable() if not own or name not in net.copies)

    def _scheduled(self, samples: int) -> Any:
        """Return the schedule of a step, of microbatches of `samples` each."""
        made = []
        for number, (cut, module) in enumerate(zip(self._cuts, self._modules)):
            entering, leaving = (
                blank(self._graph, names, samples, self._crosses, "meta") for names in (cut.entering, cut.leaving)
            )
            if cut.begin:
                entering = [value.requires_grad_() for value in entering]
            native = PipelineStage(
                module,
                self._index + number * self._held,
                self._held * self._chunks,
                self._device,
                # Given, not tried out: a trial would move the running statistics.
                input_args=tuple(entering),
                output_args=tuple(value.requires_grad_() for value in leaving),
                group=self.group.pipeline(self._held),
            )
            made.append(native)
        return self._schedule(made if self._chunks > 1 else made[0], self.pieces, loss_fn=self._loss_of)

    def _release(self) -> None:
        self._parts = self._modules = self._staged = self._native = self._gather = None
        self._tied = []
        super()._release()


class Hybrid(Averaging, Pipeline):
    """Pipelines side by side, each with a batch of its own; every stage is averaged over the ranks that hold it.

    DDP around a stage averages it within the last microbatch's backward.
    """

    _native_alone: Any = None  # the schedule of a step without exchange

    def build(self, graph: Graph, weights: Arrays) -> None:
        """Build a pipeline, then DDP around it where there are several."""
        super().build(graph, weights)
        if self.setup.replicas == 1:
            return
        replicas = self.group.same_stage(self._held)
        # Running statistics stay every network's own, as DDP leaves them that does not send them.
        options = {"bucket_cap_mb": "auto", "gradient_as_bucket_view": self.setup.tuned, "forward_sync_buffers": False}
        (stage,) = self._parts
        self._modules = [wrap(stage, self._device, options, replicas)]
        self._exchange = Exchange(list(stage.parameters()), self._modules[0], replicas)
        self._exchanged_bytes += self._gather.total(self.gradient_bytes() or 0) // self._held

    def step_alone(self, batch: Batch) -> None:
        """Step the pipeline without DDP; its own values cross all the same."""
        native = self._native
        self._native = self._native_alone
        modules = self._modules
        self._modules = list(self._parts)
        self.step(batch)
        self._native_alone = self._native
        self._native = native
        self._modules = modules

    def gradient_bytes(self) -> Optional[int]:
        """Count the gradients of this rank's stage."""
        if self._exchange is None:
            return None
        return sum(tensor.numel() * tensor.element_size() for tensor in self._parts.parameters())

    def _release(self) -> None:
        self._exchange = self._native_alone = None
        super()._release()


def loss_of(head_weights: List[float], heads: Any, labels: Tensor) -> Tensor:
    """Return the joint loss; a schedule hands on a single head as it is."""
    return joint_loss([heads] if isinstance(heads, Tensor) else list(heads), head_weights, labels)
