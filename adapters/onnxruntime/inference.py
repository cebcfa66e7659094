"""Inference by ONNX Runtime: a session of the network as an ONNX model; all graph optimisations are on by default."""

import numpy as np
import onnxruntime

from stagebench.adapters.onnxruntime.operators import Faster
from stagebench.suite.worker import onnx_network
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class OrtPredictor(Predictor):
    """A predictor of one network on a CPU."""

    def start(self) -> Joined:
        return Joined(0, 1, "none", {"onnxruntime": onnxruntime.__version__})

    def load(self, graph: Graph, tensors: Arrays) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.setup.threads, 1
        model = onnx_network.trained(graph, tensors, Faster if self.setup.tuned else None)
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def place(self, inputs: np.ndarray) -> np.ndarray:
        return inputs

    def run(self, placed: np.ndarray) -> np.ndarray:
        return self._session.run(None, {"input": placed})[0]

    def fetch(self, found: np.ndarray) -> np.ndarray:
        return found
