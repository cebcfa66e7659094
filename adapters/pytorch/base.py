"""The base of all strategies: device, process group, batches, clock."""

import gc
from functools import partial
from typing import Any, List, Optional

import numpy as np
import torch
from torch import Tensor

from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.candidates import Ways, by_way, choose
from stagebench.adapters.pytorch.comm import ProcessGroup
from stagebench.adapters.pytorch.decoding import Decoder, Normalise, decoder_on
from stagebench.adapters.pytorch.input import reader_of
from stagebench.adapters.pytorch.lower import CODE, attempt
from stagebench.adapters.pytorch.machine import Copies
from stagebench.adapters.pytorch.optimisers import clip, described, norm_of
from stagebench.suite.worker.contract import Batch, Joined, Setup, Unsupported, chosen, dropout_seed
from stagebench.suite.worker.threaded import Reader
from stagebench.suite.worker.trainer import Notes, Trainer
from stagebench.suite.worker.view import View
from stagebench.workloads.graph import Graph


class TorchTrainer(machine.OnDevice, Trainer):
    """A trainer without a network: `ReplicaTrainer` holds a whole one, the pipelines a stage of one.

    A batch's images are tensors (samples, channels, height, width), or uint8 (samples, height, width, 3) until
    `to_device` normalises them, or tokens: int64 (samples, positions). Its labels are int64 (samples,), or (samples,
    positions).
    """

    grouped = True  # whether its ranks join a process group
    places_inputs = True  # whether this rank's share of the network sees the inputs
    has_candidates = True  # whether its layers may be computed in other ways than torch's own
    contiguous = False  # whether its images must be; else the knob `memory_format` says
    pieces = 1  # of a batch, one forward each

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._fused = setup.tuned
        self._compiled = chosen(setup, "compile", default=False)  # or a mode of torch.compile
        self._normalise: Any = None
        self._decoder: Any = None  # where the device decodes: of photographs, a `Decoder`
        self._dtype = machine.stored(setup.precision)
        self._crosses = machine.multiplied(setup.precision)  # the type of activations where ranks exchange them
        self._copies: Optional[Copies] = None
        self._loss: Any = None
        self._optimiser: Any = None
        self._ways: Ways = {}  # `candidates.choose` fills it when the network is built

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        setup = self.setup
        self.open_device(bool(self._compiled))
        if self._on_cuda and chosen(setup, "copy_stream", default="off", tuned="on") == "on":
            self._copies = Copies(self._device)
        if chosen(setup, "decode", default="host") == "gpu":
            self._decoder = partial(Decoder, decode=decoder_on(self._device), device=self._device)
        versions = machine.versions(setup.device)
        if self.grouped:
            self.group = ProcessGroup(setup)
            return Joined(self.group.rank, self.group.world, self.group.transport, versions)
        return Joined(0, 1, "cuda copies" if setup.devices > 1 else "none", versions, setup.devices)

    def close(self) -> None:
        if self.group is not None:
            # What was built holds the group, whose threads must end before the interpreter does:
            # one that lets go of a tensor later aborts the process (pytorch/pytorch#179291).
            self._release()
        super().close()

    # --- data ---------------------------------------------------------------

    def make_reader(self, source: View) -> Reader:
        if source.records is not None:
            raise Unsupported(f"PyTorch has no records of its own and does not read {source.records.form}")
        about = source.source.photographs
        self._normalise = Normalise(about.how, about.crop, self._device) if about else None
        return reader_of(source, self.setup, self.places_inputs, self._decoder)

    def as_numpy(self, batch: Batch) -> Batch:
        """Bytes are normalised, as `to_device` does it."""
        inputs = self._normalised(torch.as_tensor(batch.inputs).to(self._device)).contiguous().cpu()
        return Batch((inputs.float() if inputs.is_floating_point() else inputs).numpy(), batch.labels.numpy())

    def to_device(self, batch: Batch) -> Batch:
        """Return tensors on the device, images in the network's memory format and type, or None if not needed here."""
        labels = torch.as_tensor(batch.labels)
        if not self.places_inputs:
            return Batch(None, labels.to(self._device, non_blocking=True))
        inputs = torch.as_tensor(batch.inputs)
        if self._copies is None or inputs.is_cuda:  # what was decoded there is there
            inputs = self._normalised(inputs.to(self._device, non_blocking=True))
            labels = labels.to(self._device, non_blocking=True)
            return Batch(inputs.to(memory_format=self._layout), labels)
        place, labels = self._copies.batch(inputs, labels)
        inputs = self._normalised(place).to(memory_format=self._layout)
        # A resident batch stays, while the next one is copied to the same place.
        return Batch(inputs.clone() if inputs.data_ptr() == place.data_ptr() else inputs, labels.clone())

    def _normalised(self, inputs: Tensor) -> Tensor:
        """Return images in the type of the network's input; bytes are levels that the data set says how to scale.

        The numbers of tokens stay as they are: no shorter type has all of them.
        """
        if inputs.dtype == torch.int64:
            return inputs
        return (self._normalise(inputs) if inputs.dtype == torch.uint8 else inputs).to(self._dtype)

    # --- training -----------------------------------------------------------

    def communicate(self) -> None:
        """No-op, unless a strategy exchanges gradients in a stage of its own."""

    def update(self) -> None:
        self._optimise()

    def set_learning_rate(self, rate: float) -> None:
        """Torch's SGD keeps the rate outside its velocity."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate

    def notes(self) -> Notes:
        return dict(
            super().notes(),
            memory_format=str(self._layout).replace("torch.", ""),
            compile=self._compiled,
            lrn="shifted additions, own backward" if self.setup.tuned else "torch.nn.LocalResponseNorm",
            optimiser=described(self.setup.optimiser, self._fused),
            layer_kernels=by_way(self._ways),
            copies="on a stream of their own" if self._copies else "in the order of the steps",
            stages="events on the device's stream" if self.has_device_marks() else "the host's clock",
        )

    # --- for the subclasses ---------------------------------------------------

    def _optimise(self) -> None:
        self._clip()
        self._scaler.step(self._optimiser)
        self._scaler.update()
        self._optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _clip(self) -> None:
        """Clip the averaged gradients, unscaled first: the scaler would divide them only in its step."""
        most = self.setup.optimiser.clip
        if most:
            self._scaler.unscale_(self._optimiser)
            parameters = [each for group in self._optimiser.param_groups for each in group["params"]]
            gradients = [each.grad for each in parameters if each.grad is not None]
            clip(gradients, self._norm(gradients), most)

    def _norm(self, gradients: List[Tensor]) -> Tensor:
        """Return the norm of the whole network's gradients."""
        return norm_of(gradients)

    def _begin_build(self, graph: Graph) -> None:
        """Let go of the last network, restart the masks of dropout, choose the memory format and each layer's way."""
        self._release()
        setup = self.setup
        # In other precisions than float16, whose gradients would vanish, it does nothing.
        self._scaler = torch.amp.GradScaler(setup.device, machine.FIRST_SCALE, enabled=setup.precision == "float16")
        torch.manual_seed(dropout_seed(setup.seed, setup.rank * setup.devices))
        self._graph = graph
        self._head_weights = [head.weight for head in graph.heads]
        self._layout = torch.contiguous_format if self.contiguous else layout_of(setup, graph)
        self._ways = {}
        if self.has_candidates and not self._compiled:
            samples = (setup.tuned_batch or setup.batch) // setup.devices // self.pieces
            tried = partial(attempt, self._layout, samples=samples)
            self._ways = choose(setup, self.group, graph, samples, f"pytorch, {self._layout}", tried, CODE)

    def _release(self) -> None:
        """Let go of what was built; DDP is in a reference cycle."""
        self._loss = self._optimiser = None
        gc.collect()


def layout_of(setup: Setup, graph: Graph) -> torch.memory_format:
    """Return the memory format of images and convolution weights."""
    convolutional = any(layer.kind == "conv" for layer in graph.layers)
    fast = "channels_last" if convolutional else "contiguous"
    last = chosen(setup, "memory_format", default="contiguous", tuned=fast) == "channels_last"
    return torch.channels_last if last and len(graph.input_shape) == 3 else torch.contiguous_format


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a copy, contiguous in the canonical layout; float32, or float64 where it was computed so."""
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to("cpu", wide, copy=True, memory_format=torch.contiguous_format).numpy()
