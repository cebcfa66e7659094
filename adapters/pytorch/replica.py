"""Trainers that hold the whole network: `single`, `dp`, and the base of all data-parallel strategies."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DataParallel

from stagebench.adapters.pytorch.base import TorchTrainer, to_numpy
from stagebench.adapters.pytorch.kernel_times import kernel_times
from stagebench.adapters.pytorch.machine import MIXED, own_gpus
from stagebench.adapters.pytorch.net import Heads, Net, blank, counted_macs, joint_loss, layer_times
from stagebench.adapters.pytorch.optimisers import make_optimiser
from stagebench.adapters.pytorch.segments import Segments
from stagebench.suite.worker.contract import Batch, LayerTimes, Setup, Unsupported, chosen, dropout_seed
from stagebench.suite.worker.messages import Kernels
from stagebench.suite.worker.trainer import Arrays, Iteration, Notes
from stagebench.workloads.graph import Graph

WARM = 3  # steps before a recording, in which cuDNN and the optimiser make what they keep


class ReplicaTrainer(TorchTrainer):
    """Trains a lowered graph with torch.optim; a subclass adds the exchange."""

    contiguous_weights = False  # whether parameters must be; else they have the images' memory format

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._net: Any = None
        self._staged_net: Any = None  # what a staged forward runs: the network, perhaps compiled
        self._native_net: Any = None  # what a native step runs: the same in what a strategy wraps around it
        self._heads: Heads = []
        self._segments = chosen(setup, "checkpoint_segments", default=1)
        self._records = chosen(setup, "cuda_graph", default=False)
        self._recorded: Optional["RecordedStep"] = None

    # --- life ---------------------------------------------------------------

    def build(self, graph: Graph, weights: Arrays) -> None:
        self._begin_build(graph)
        self._net = self._network(graph, weights)
        layout = torch.contiguous_format if self.contiguous_weights else self._layout
        self._net.to(self._device, self._dtype, memory_format=layout).train()
        self._staged_net = self._native_net = self._perhaps_compiled(self._net)
        self._wrap()
        self._optimiser = self._make_optimiser(list(self._net.parameters()))

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        """Run the network without its wrapping: nothing is exchanged."""
        self._heads, self._loss = self._evaluate(self._staged_net, batch)

    def backward(self) -> None:
        """Run autograd; the gradients are this rank's own."""
        self._scaler.scale(self._loss).backward()
        self._loss = self._loss.detach()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Batch) -> None:
        if self._records and self._recorded is None:
            self._heads = []  # a staged forward's: autograd's nodes behind them go by the stream they were made on
            self._recorded = RecordedStep(self._stepped, batch, self._net, self._optimiser)
        if self._recorded is None or not self._recorded.takes(batch):
            self._loss = self._stepped(batch)
        else:
            self._recorded(batch)
            self._loss = self._recorded.loss

    def _stepped(self, batch: Batch) -> Tensor:
        """Make a step and return the loss before it."""
        _, loss = self._evaluate(self._native_net, batch)
        self._scaler.scale(loss).backward()
        self._optimise()
        return loss.detach()

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        return float(self._loss.detach())

    def logits(self) -> np.ndarray:
        return to_numpy(self._heads[-1])

    def predict(self, batch: Batch) -> np.ndarray:
        self._net.eval()
        with torch.no_grad():
            heads = self._net(batch.inputs)
        self._net.train()
        return to_numpy(heads[-1])

    def gradients(self) -> Arrays:
        """Return the gradients without the scale of the loss."""
        scale = self._scaler.get_scale()
        found = {name: to_numpy(whole(parameter.grad)) for name, parameter in self._net.trainable()}
        return found if scale == 1.0 else {name: gradient / scale for name, gradient in found.items()}

    def parameters(self) -> Arrays:
        """Return the whole of sharded tensors; running statistics are this rank's own."""
        return {name: to_numpy(whole(tensor)) for name, tensor in self._net.tensors()}

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self._net.parameters() if parameter.requires_grad)

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        """Time the network without its wrapping, on the first device."""
        if self._compiled:
            raise Unsupported("torch.compile fuses layers")
        if self._segments > 1:
            raise Unsupported("with checkpoint_segments the backward computes layers again")
        share = Batch(*(values[: self.setup.batch // self.setup.devices] for values in batch))
        return layer_times(self, self._graph, self._net, partial(self._evaluate, batch=share))

    def kernel_times(self, iteration: Iteration, trace: str) -> Kernels:
        if self._compiled and not self._on_cuda:
            raise Unsupported("torch.compile calls its kernels on CPUs without telling torch's profiler")
        return kernel_times(self, iteration, trace)

    def macs(self) -> int:
        return counted_macs(self._net, *blank(self._graph, ["input"], 1, self._dtype, self._device))

    # --- for the subclasses ---------------------------------------------------

    def _evaluate(self, network: Any, batch: Batch) -> Tuple[Heads, Tensor]:
        """Return the heads and the joint loss, in the case's precision."""
        narrow = MIXED.get(self.setup.precision)
        if narrow is not None:
            with torch.autocast(self._device.type, dtype=narrow):
                heads = network(batch.inputs)
        else:
            heads = network(batch.inputs)
        return heads, joint_loss(heads, self._head_weights, batch.labels)

    def _network(self, graph: Graph, weights: Arrays) -> Any:
        """Make this rank's network, on the host."""
        alike = self.setup.knobs.get("deterministic") == "on"  # torch's own normalisation has no such backward
        fast = self.setup.tuned or alike
        if self._segments > 1:
            return Segments(graph, weights, fast, self._ways, self._segments)
        return Net(graph, weights, fast, ways=self._ways)

    def _perhaps_compiled(self, network: Any) -> Any:
        """Compile by torch.compile, if the knob asks for it: True is its default mode."""
        if not self._compiled:
            return network
        return torch.compile(network, mode=None if self._compiled is True else self._compiled)

    def _wrap(self) -> None:
        """Called in `build`, between the network and its optimiser."""

    def _make_optimiser(self, parameters: List[Tensor]) -> Any:
        skips = self.setup.precision == "float16"
        return make_optimiser(parameters, self.setup.optimiser, self._fused, skips)

    def _release(self) -> None:
        self._net = self._staged_net = self._native_net = self._recorded = None
        self._heads = []
        super()._release()


class SharedTrainer(ReplicaTrainer):
    """A trainer of one network on all ranks: a share on each, the rest whole on every rank and alike, by one batch."""

    _exchanged_bytes = 0  # set by `build`: what a rank contributes to the exchanges of a step, the mean over ranks

    def step_alone(self, batch: Batch) -> None:
        """Refuse: a rank does not have the network that it would train."""
        raise Unsupported(f"under {self.setup.strategy!r} a rank has a share of the network and cannot compute alone")

    def notes(self) -> Notes:
        return dict(super().notes(), exchanged_bytes=self._exchanged_bytes)

    def _begin_build(self, graph: Graph) -> None:
        """Begin with the same masks of dropout on every rank."""
        super()._begin_build(graph)
        torch.manual_seed(dropout_seed(self.setup.seed, 0))


class Single(ReplicaTrainer):
    """The strategy `single`: one process, no process group, no exchange."""

    grouped = False


class DP(ReplicaTrainer):
    """The strategy `dp`: DataParallel scatters batch and weights over this process's GPUs in every step."""

    grouped = False

    def synchronize(self) -> None:
        """Wait for all of them: a step ends on the first, a measurement of their peaks on each."""
        for number in own_gpus(self.setup):
            torch.cuda.synchronize(number)

    def _wrap(self) -> None:
        # Its staged forward scatters as its native one does: there is no other.
        self._staged_net = self._native_net = Scattered(self._staged_net, device_ids=list(range(self.setup.devices)))


class Scattered(DataParallel):  # type: ignore[type-arg]
    """DataParallel whose copies of a network run their own layers: torch replaces submodules, and nothing else."""

    def replicate(self, module: Any, device_ids: Any) -> List[Any]:
        copies = super().replicate(module, device_ids)
        for copy in copies:
            copy.follow(module)
        return copies


class RecordedStep:
    """A training step on batches of one shape, recorded as a CUDA graph: the GPU launches its kernels, not Python.

    A recording wants everything to lie where it will lie, so steps are run before it, as torch's documentation has it;
    on the stream that records, since autograd remembers on which one it has summed up gradients. They train: what they
    changed is put back before the first step that counts.
    """

    def __init__(
        self, step: Callable[[Batch], Tensor], batch: Batch, network: torch.nn.Module, optimiser: torch.optim.Optimizer
    ) -> None:
        """`step` trains the network with a batch, by the optimiser, and returns its loss.

        What the first steps make anew (momentum) is 0 then, from where the optimiser's rule takes its first step, too.
        """
        self._batch = Batch(*(part.clone() for part in batch))
        masks = torch.cuda.get_rng_state()
        # Detached: a clone that autograd knows would keep its nodes, which go by the stream they were made on.
        kept = {tensor.data_ptr(): tensor.detach().clone() for tensor in state_of(network, optimiser)}
        recording = torch.cuda.Stream()
        recording.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(recording):
            for _ in range(WARM):
                step(self._batch)
        torch.cuda.current_stream().wait_stream(recording)
        self._graph = torch.cuda.CUDAGraph()
        # Threads that pin batches may continue during the recording.
        with torch.cuda.graph(self._graph, stream=recording, capture_error_mode="thread_local"):
            self.loss = step(self._batch)
        put_back(kept, state_of(network, optimiser))
        torch.cuda.set_rng_state(masks)

    def takes(self, batch: Batch) -> bool:
        """Return whether a batch has the recorded one's shape."""
        return bool(batch.inputs.shape == self._batch.inputs.shape)

    def __call__(self, batch: Batch) -> None:
        """Train with this batch; `loss` is its loss when that is done."""
        for place, values in zip(self._batch, batch):
            place.copy_(values)
        self._graph.replay()


@torch.no_grad()
def put_back(kept: Dict[int, Tensor], now: List[Tensor]) -> None:
    """Restore the values at these addresses, and set new tensors to 0."""
    for tensor in now:
        if tensor.data_ptr() in kept:
            tensor.copy_(kept[tensor.data_ptr()])
        else:
            tensor.zero_()


def state_of(network: torch.nn.Module, optimiser: torch.optim.Optimizer) -> List[Tensor]:
    """Return all tensors that a step changes and that exist by now."""
    kept = [value for values in optimiser.state.values() for value in values.values()]
    return [*network.parameters(), *network.buffers(), *(value for value in kept if isinstance(value, Tensor))]


def whole(tensor: Any) -> Tensor:
    """Return the whole of a tensor that ranks have shares of (a DTensor, by a collective call); any other as it is."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def microbatches(batch: Batch, count: int) -> Iterator[Batch]:
    """Yield equal pieces of a batch, one after the other; inputs may be None."""
    inputs = [None] * count if batch.inputs is None else batch.inputs.chunk(count)
    return (Batch(*piece) for piece in zip(inputs, batch.labels.chunk(count)))
