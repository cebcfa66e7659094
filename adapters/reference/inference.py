"""Inference in NumPy float64: the layers' own predict, nothing folded."""

import numpy as np

from stagebench.adapters.reference.base import joined, wide
from stagebench.adapters.reference.lower import Network
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class ReferencePredictor(Predictor):
    """A network in one process."""

    def start(self) -> Joined:
        return joined(self.setup._replace(world=1))  # one of several hosts, which does not know the others

    def load(self, graph: Graph, tensors: Arrays) -> None:
        own, tensors = for_inference(graph, tensors, fold=False)
        self._network = Network(own, tensors)
        for name, statistic in self._network.named("statistics").items():
            statistic[...] = tensors[name]

    def place(self, inputs: np.ndarray) -> np.ndarray:
        return wide(inputs)

    def run(self, placed: np.ndarray) -> np.ndarray:
        return self._network.predict(placed)

    def fetch(self, found: np.ndarray) -> np.ndarray:
        return found
