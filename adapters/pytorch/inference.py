"""Inference: the network in eval mode under `inference_mode`, compiled if the knob asks for it."""

from typing import Any, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.base import layout_of, to_numpy
from stagebench.adapters.pytorch.fused import fused
from stagebench.adapters.pytorch.machine import MIXED
from stagebench.adapters.pytorch.net import Net
from stagebench.suite.worker.contract import Joined, chosen
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.pipeline_stages import Stage
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class TorchPredictor(Predictor, machine.OnDevice):
    """A predictor of one network on one device."""

    _run: Any = None  # the network

    def start(self) -> Joined:
        self._compiled = chosen(self.setup, "compile", default=False)  # or a mode of torch.compile
        self.open_device(bool(self._compiled))
        setup, onednn = self.setup, torch.backends.mkldnn
        plain = setup.tuned and setup.device == "cpu" and setup.precision == "float32" and not self._compiled
        self._fuses = plain and onednn.is_available() and onednn.enabled
        self._mode = torch.inference_mode()  # for good: to enter it takes a tenth of mnist_small's query of one sample
        self._mode.__enter__()
        return Joined(0, 1, "none", machine.versions(self.setup.device))

    def load(self, graph: Graph, tensors: Arrays) -> None:
        net = self._lowered(*self._begin_load(graph, tensors))
        self._run = net.forward if self._fuses else net
        if self._compiled:
            mode = None if self._compiled is True else self._compiled
            self._run = torch.compile(net, mode=mode)

    def _begin_load(self, graph: Graph, tensors: Arrays) -> Tuple[Graph, Arrays]:
        """Let go of the last network; return what to lower."""
        setup = self.setup
        self._run = None
        self._dtype = machine.stored(setup.precision)
        self._layout = layout_of(setup, graph)
        return for_inference(graph, tensors, fold=setup.tuned)

    def _lowered(self, graph: Graph, tensors: Arrays, stage: Optional[Stage] = None, pieces: int = 1) -> Net:
        """Return the network, or a stage of it, for queries in as many pieces."""
        setup = self.setup
        net = Net(graph, tensors, fast=setup.tuned, stage=stage)
        net.to(self._device, self._dtype, memory_format=self._layout).eval().requires_grad_(False)
        for name, tensor in net.tensors():  # after the type is set: a float64 network has them whole
            tensor.copy_(torch.from_numpy(np.asarray(tensors[name], np.float64)))
        if self._fuses:
            begin = stage.begin if stage else 0
            net.program = fused(net.program, graph, begin, setup.batch // pieces)
        return net

    def place(self, inputs: np.ndarray) -> Tensor:
        if self._fuses:
            given = torch.from_numpy(inputs)
            return given.contiguous(memory_format=self._layout) if given.dim() == 4 else given
        placed = torch.from_numpy(inputs).to(self._device, non_blocking=True)
        return placed if placed.dtype == torch.int64 else placed.to(self._dtype, memory_format=self._layout)

    def run(self, placed: Tensor) -> Tensor:
        narrow = MIXED.get(self.setup.precision)
        if narrow is None:  # autocast takes mnist_small's query some time even where it is off
            return self._run(placed)[-1]  # type: ignore[no-any-return]
        with torch.autocast(self._device.type, dtype=narrow):
            return self._run(placed)[-1]  # type: ignore[no-any-return]

    def fetch(self, found: Tensor) -> np.ndarray:
        return found.numpy() if self._fuses and found.is_contiguous() else to_numpy(found)

    def close(self) -> None:
        self._mode.__exit__(None, None, None)
        super().close()

    def notes(self) -> Notes:
        return dict(super().notes(), memory_format=str(self._layout).replace("torch.", ""), compile=self._compiled)
