"""The base of Caffe-MPI's trainers: a net of layers, Caffe's solver, `caffe time`'s table, and no rank but this one."""

from functools import partial
from typing import Any, Iterator, List, Optional

import numpy as np
import torch
from torch import Tensor

from stagebench.adapters.caffempi.input import Database, ReadingThreads, pack
from stagebench.adapters.caffempi.lower import CODE, attempt, lower
from stagebench.adapters.caffempi.net import Arena, Group, Net, Span, exported
from stagebench.adapters.caffempi.optimisers import solver_of
from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.candidates import Ways, by_way, choose
from stagebench.adapters.pytorch.input import TensorReader
from stagebench.suite.worker.contract import Batch, Joined, LayerTimes, Setup, chosen, dropout_seed
from stagebench.suite.worker.feed import synthetic
from stagebench.suite.worker.layers import LayerClock
from stagebench.suite.worker.packed_set import Record, RecordSource
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Arrays, Notes, Trainer
from stagebench.suite.worker.view import View
from stagebench.workloads.graph import Graph


class GroupClock(LayerClock):
    """Seconds of every layer, as `caffe time` gives them, and of its share of an exchange by groups."""

    def __init__(self, trainer: Any, graph: Graph, arena: Arena) -> None:
        super().__init__(trainer, graph)
        self._spans = arena.spans

    def communication(self, group: Group, seconds: float) -> None:
        """Note that a group has been exchanged: its layers share the seconds by their bytes."""
        whole = group.span.end - group.span.begin
        for layer in group.layers:
            self.exchanged(layer, seconds * (self._spans[layer].end - self._spans[layer].begin) / float(whole))


class OnNet(machine.OnDevice):
    """A rank's net on its device: the memory format, the type of numbers, the ways of its layers."""

    def __init__(self, setup: Setup) -> None:
        """Resolve what the memory format's knob leaves open."""
        super().__init__(setup)
        self._layout = chosen(setup, "memory_format", default="contiguous", tuned="channels_last")
        self._dtype = machine.stored(setup.precision)
        self._ways: Ways = {}  # `candidates.choose` fills it when the net is lowered

    def lower(self, graph: Graph, trains: bool = True) -> Net:
        setup = self.setup
        channels_last = self._layout == "channels_last"
        samples = setup.tuned_batch or setup.batch
        tried = partial(attempt, channels_last, samples=samples)
        self._ways = choose(setup, self.group, graph, samples, f"caffempi, {self._layout}", tried, CODE)
        return lower(graph, channels_last, setup.world, self._dtype, self._device, self._ways, trains)

    def placed(self, inputs: Any) -> Tensor:
        """Bring images to the device, in the net's type and memory format, or tokens, which stay whole numbers."""
        there = torch.as_tensor(inputs).to(self._device, non_blocking=True)
        if there.is_floating_point():
            there = there.to(self._dtype)
        if self._layout == "channels_last" and there.dim() == 4:
            there = there.contiguous(memory_format=torch.channels_last)
        return there

    def notes(self) -> Notes:
        return dict(super().notes(), memory_format=self._layout, layer_kernels=by_way(self._ways))


class CaffeMPITrainer(OnNet, Trainer):
    """A rank that trains alone; strategies add the exchange of its gradients.

    On the device a batch's images are tensors (samples, channels, height, width), or tokens: int64 (samples,
    positions); its labels are int64 (samples,), or (samples, positions) if each token has one.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._database: Optional[Database] = None

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Set threads and device; a strategy of several ranks joins its group here."""
        self.open_device()
        return Joined(self.setup.rank, self.setup.world, "none", machine.versions(self.setup.device))

    def build(self, graph: Graph, weights: Arrays) -> None:
        setup = self.setup
        self._graph = graph
        self._net = self.lower(graph)
        self._arena = self._net.arena
        self._clock = self.new_clock()
        self._arena.load(weights)
        self._solver = solver_of(self._arena, setup.optimiser)
        self._all = Span(0, len(self._arena.gradients))
        torch.manual_seed(dropout_seed(setup.seed, setup.rank))

    # --- data ---------------------------------------------------------------

    def pack(self, form: str, samples: Iterator[Record], folder: str) -> None:
        pack(samples, folder)

    def open_records(self, records: RecordSource) -> Database:
        """Return samples by number: the reading threads take them from the mapped environments."""
        self._database = Database(records)
        return self._database

    def make_reader(self, source: View) -> Reader:
        """Return Caffe-MPI's parallel reading threads, over files or a database; what lies in memory needs none."""
        if source.arrays is None:
            return ReadingThreads(source, self.setup, self._database)
        return TensorReader(source, self.setup) if self._on_cuda else super().make_reader(source)

    def to_device(self, batch: Batch) -> Batch:
        labels = torch.as_tensor(batch.labels).to(self._device, non_blocking=True)
        return Batch(self.placed(batch.inputs), labels)

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Batch) -> None:
        self._clock.begin()
        self._net.forward(batch.inputs, batch.labels, self._clock.forward)

    def backward(self) -> None:
        """Compute layer by layer, timed, without any exchange."""
        self._clock.begin()
        self._net.backward(self._clock.backward)

    def update(self) -> None:
        self._solver.begin()
        self._solver.clip()
        self._solver.update(self._all)

    # --- the native iteration -----------------------------------------------

    def step_alone(self, batch: Batch) -> None:
        self._net.forward(batch.inputs, batch.labels)
        self._net.backward()
        CaffeMPITrainer.update(self)

    def set_learning_rate(self, rate: float) -> None:
        self._solver.set_rate(rate)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        return self._net.loss()

    def logits(self) -> np.ndarray:
        return exported(self._net.losses[-1][1].logits)

    def predict(self, batch: Batch) -> np.ndarray:
        return exported(self._net.predict(batch.inputs))

    def gradients(self) -> Arrays:
        """Return them averaged after `communicate`; before it, this rank's share of the average."""
        return self._arena.export(self._arena.gradients)

    def parameters(self) -> Arrays:
        found = self._arena.export(self._arena.parameters)
        found.update((name, exported(buffer)) for name, buffer in self._net.buffers().items())
        return found

    def parameter_count(self) -> int:
        """Count the blobs in the one array that the solver updates, without the gaps that align them."""
        return self._arena.size

    def macs(self) -> int:
        """Count on the layers after a forward pass."""
        if not self._net.losses or self._net.losses[0][1].logits is None:
            self.run_trial(2, 1, self.new_clock())
        return self._net.macs()

    def new_clock(self) -> GroupClock:
        return GroupClock(self, self._graph, self._net.arena)

    def run_trial(self, samples: int, times: int, clock: GroupClock) -> None:
        """Run forward and backward on generated data; all but the gradients is as before."""
        kept = {name: buffer.clone() for name, buffer in self._net.buffers().items()}
        batch = self.to_device(synthetic(self._graph, samples, self.setup.seed))
        with torch.random.fork_rng(devices=[self._device.index] if self._on_cuda else []):
            for _ in range(times):
                self._net.forward(batch.inputs, batch.labels)
                clock.begin()
                self._net.backward(clock.backward)
        for name, buffer in self._net.buffers().items():
            buffer.copy_(kept[name])

    def layer_times(self, batch: Batch) -> List[LayerTimes]:
        """Return Caffe's table, of the staged pass itself."""
        return self._clock.rows()

    def forget_layer_times(self) -> None:
        self._clock.forget()


class Single(CaffeMPITrainer):
    """The strategy `single`: one rank, without MPI."""

    step = CaffeMPITrainer.step_alone

    def communicate(self) -> None:
        """No-op: there is no other rank."""
