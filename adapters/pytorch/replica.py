"""A trainer that holds the whole network: what `single` is, and the data-parallel strategies build on."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from adapters.pytorch.base import TorchTrainer, to_numpy
from adapters.pytorch.kernels import kernel_times
from adapters.pytorch.net import Net, joint_loss
from adapters.pytorch.optimisers import make_optimiser
from adapters.pytorch.precision import MIXED
from adapters.pytorch.recorded import RecordedStep, state_of
from suite.worker.contract import Batch, LayerTimes, Setup, Unsupported, chosen, dropout_seed
from suite.worker.layers import LayerClock, repeated
from suite.worker.messages import Kernels
from workloads.graph import Graph


class ReplicaTrainer(TorchTrainer):
    """Trains a lowered graph with torch.optim; a subclass adds the exchange."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._net: Any = None
        self._staged_net: Any = None  # what a staged forward runs: the network, perhaps compiled
        self._native_net: Any = None  # what a native step runs: the same in what a strategy wraps around it
        self._heads: List[torch.Tensor] = []
        self._records = chosen(setup, "cuda_graph", default=False)
        self._recorded: Optional[RecordedStep] = None

    # --- life ---------------------------------------------------------------

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        self._begin_build(graph)
        self._graph = graph
        self._net = self._network(graph, weights)
        self._net.to(self._device, self._dtype, memory_format=self._weights_format()).train()
        self._staged_net = self._perhaps_compiled(self._net)
        self._native_net = self._staged_net
        self._wrap()
        self._optimiser = self._make_optimiser(list(self._net.parameters()))

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        """The network without its wrapping: nothing is exchanged."""
        self._heads, self._loss = self._evaluate(self._staged_net, batch)

    def backward(self) -> None:
        """Autograd; the gradients are this rank's own."""
        self._scaler.scale(self._loss).backward()
        self._loss = self._loss.detach()

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Batch) -> None:
        if self._records and self._recorded is None:
            self._heads = []  # a staged forward's: autograd's nodes behind them go by the stream they were made on
            self._recorded = RecordedStep(self._stepped, batch, partial(state_of, self._net, self._optimiser))
        if self._recorded is None or not self._recorded.takes(batch):
            self._loss = self._stepped(batch)
        else:
            self._recorded(batch)
            self._loss = self._recorded.loss

    def _stepped(self, batch: Batch) -> torch.Tensor:
        """A step; the loss before it."""
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
            heads = self._net(batch.images)
        self._net.train()
        return to_numpy(heads[-1])

    def gradients(self) -> Dict[str, np.ndarray]:
        """Return the gradients without the scale of the loss."""
        scale = self._scaler.get_scale()
        found = {name: to_numpy(parameter.grad) for name, parameter in self._net.trainable()}
        return found if scale == 1.0 else {name: gradient / scale for name, gradient in found.items()}

    def parameters(self) -> Dict[str, np.ndarray]:
        return {name: to_numpy(tensor) for name, tensor in self._net.tensors()}

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self._net.parameters() if parameter.requires_grad)

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        """Time the network without its wrapping, on the first device."""
        if self._compiled:
            raise Unsupported("torch.compile fuses layers")
        share = Batch(*(values[: self.setup.batch // self.setup.devices] for values in batch))
        return layer_times(self, self._graph, self._net, partial(self._evaluate, batch=share))

    def kernel_times(self, iteration: Callable[[Callable[[str], Any]], None], trace: str) -> Kernels:
        if self._compiled and not self._on_cuda:
            raise Unsupported("torch.compile calls its kernels on CPUs without telling torch's profiler")
        return kernel_times(self, iteration, trace)

    def macs(self) -> int:
        sample = torch.zeros((1,) + tuple(self._shape), dtype=self._dtype, device=self._device)
        return counted_macs(self._net, sample)

    # --- for the subclasses ---------------------------------------------------

    def _evaluate(self, network: Any, batch: Batch) -> Tuple[List[torch.Tensor], torch.Tensor]:
        """(the heads' logits, the joint loss), in the case's precision."""
        narrow = MIXED.get(self.setup.precision)
        if narrow is not None:
            with torch.autocast(self._device.type, dtype=narrow):
                heads = network(batch.images)
        else:
            heads = network(batch.images)
        return heads, joint_loss(heads, self._head_weights, batch.labels)

    def _network(self, graph: Graph, weights: Dict[str, np.ndarray]) -> Any:
        """Make this rank's network, on the host."""
        alike = self.setup.knobs.get("deterministic") == "on"  # torch's own normalisation has no such backward
        return Net(graph, weights, fast=self.setup.tuned or alike, ways=self._ways)

    def _perhaps_compiled(self, network: Any) -> Any:
        """Compile by torch.compile, if the knob asks for it: True is its default mode."""
        if not self._compiled:
            return network
        return torch.compile(network, mode=None if self._compiled is True else self._compiled)

    def _wrap(self) -> None:
        """Called in `build`, between the network and its optimiser."""

    def _make_optimiser(self, parameters: List[torch.Tensor]) -> Any:
        skips = self.setup.precision == "float16"
        return make_optimiser(parameters, self.setup.optimiser, self._fused, skips)

    def _weights_format(self) -> Any:
        return self._layout

    def _release(self) -> None:
        self._net = self._staged_net = self._native_net = self._recorded = None
        self._heads = []
        super()._release()


class SharedTrainer(ReplicaTrainer):
    """A trainer of one network on all ranks: a share on each, the rest whole on every rank and alike, by one batch."""

    _exchanged_bytes = 0  # set by `build`: what a rank contributes to the exchanges of a step, the mean over ranks

    def step_alone(self, batch: Batch) -> None:
        """A rank does not have the network that it would train."""
        raise Unsupported("under %r a rank has a share of the network and cannot compute alone" % self.setup.strategy)

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), exchanged_bytes=self._exchanged_bytes)

    def _begin_build(self, graph: Graph) -> None:
        """With the same masks of dropout on every rank."""
        super()._begin_build(graph)
        torch.manual_seed(dropout_seed(self.setup.seed, 0))


class Single(ReplicaTrainer):
    """The strategy `single`: one process, no process group, no exchange."""

    grouped = False


def layer_times(trainer: Any, graph: Graph, net: Net, evaluate: Callable[..., Any]) -> List[LayerTimes]:
    """Time each layer within a real forward and backward: laps between layers, and in autograd's hooks.

    `evaluate(network)` gives the heads and the loss of a batch; gradients are dropped. Autograd works through the
    forward's record in the opposite order, so a layer's backward lasts from the moment its output's gradient is there
    until the next layer's is; sums over a value's readers are in the last one's.
    """
    clock = LayerClock(trainer, graph)
    places = {layer.name: index for index, layer in enumerate(graph.layers)}
    # After the accumulation, as DDP's and Horovod's own hooks.
    handles = [
        parameter.register_post_accumulate_grad_hook(partial(_complete, clock, places[name.rpartition(".")[0]]))
        for name, parameter in net.trainable()
    ]
    try:
        return repeated(clock, partial(_once, clock, len(graph.layers), net, evaluate))
    finally:
        for handle in handles:
            handle.remove()


def _once(clock: LayerClock, loss_row: int, net: Net, evaluate: Callable[..., Any]) -> None:
    running = [loss_row]  # the row whose backward is running

    def reached(index: int, _: Any) -> None:
        clock.backward(running[0])
        running[0] = index

    def done(index: int, output: Any, fresh: bool) -> None:
        clock.forward(index)
        if fresh and output.requires_grad:
            output.register_hook(partial(reached, index))

    clock.begin()
    _, loss = evaluate(lambda images: net.layer_by_layer(images, done))
    clock.forward(loss_row)
    clock.begin()
    loss.backward()
    clock.backward(running[0])
    net.zero_grad(set_to_none=True)


def _complete(clock: LayerClock, index: int, _: Any) -> None:
    clock.ready(index)


def counted_macs(network: Any, *samples: torch.Tensor) -> int:
    """Multiply-accumulates of a forward pass, one being two of FlopCounterMode's operations."""
    counter = FlopCounterMode(display=False)
    network.eval()  # the running statistics stay as they are
    with torch.no_grad(), counter:
        network(*samples)
    network.train()
    return int(counter.get_total_flops()) // 2


def microbatches(values: Any, count: int) -> Iterator[Tuple[Any, ...]]:
    """A batch's tensors (or None) in `count` equal pieces, side by side."""
    pieces = [[None] * count if value is None else value.chunk(count) for value in values]
    return zip(*pieces)
