"""Inference: the trainer's net, forward alone; tuned, PyTorch's adapter's, as the design's own is all in training."""

import numpy as np
import torch
from torch import Tensor

from stagebench.adapters.caffempi.base import OnNet
from stagebench.adapters.caffempi.net import exported
from stagebench.adapters.pytorch import machine
from stagebench.adapters.pytorch.inference import TorchPredictor
from stagebench.suite.worker.contract import Joined, Setup
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class CaffeMPIPredictor(Predictor, OnNet):
    """A net on one device; tuned, PyTorch's adapter's predictor."""

    def __new__(cls, setup: Setup) -> "Predictor":  # type: ignore[misc]  # another class where it is tuned
        return TorchPredictor(setup) if setup.tuned else super().__new__(cls)

    def start(self) -> Joined:
        self.open_device()
        return Joined(0, 1, "none", machine.versions(self.setup.device))

    def load(self, graph: Graph, tensors: Arrays) -> None:
        own, tensors = for_inference(graph, tensors, fold=False)
        self._net = self.lower(own, trains=False)
        self._net.arena.load(tensors)
        for name, buffer in self._net.buffers().items():
            buffer.copy_(torch.from_numpy(np.asarray(tensors[name])))

    def place(self, inputs: np.ndarray) -> Tensor:
        return self.placed(inputs)

    def run(self, placed: Tensor) -> Tensor:
        return self._net.predict(placed)

    def fetch(self, found: Tensor) -> np.ndarray:
        return exported(found)
