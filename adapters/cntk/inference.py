"""Inference: the logits, evaluated as one function of samples; a tuned query skips the checks of arguments."""

from typing import Any, Dict

import numpy as np

from stagebench.adapters.cntk import machine
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.adapters.cntk.net import Net
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class CNTKPredictor(Predictor):
    """A network in one process; an answer is there when `run` returns."""

    def start(self) -> Joined:
        self._device = machine.prepare(self.setup)
        return Joined(0, 1, "none", machine.versions())

    def load(self, graph: Graph, tensors: Arrays) -> None:
        own, tensors = for_inference(graph, tensors, fold=self.setup.tuned)
        self._dtype = machine.number(self.setup)
        self._net = Net(own, tensors, self._dtype, self.setup.batch, lambda layer: 0, fast=self.setup.tuned)
        if self.setup.tuned:  # with constants gpt_char takes 0.97 of the time that it does with parameters
            frozen = self._net.logits.clone(C.CloneMethod.freeze)
            self._frozen = frozen, frozen.arguments[0], frozen.output

    def place(self, inputs: np.ndarray) -> Any:
        return C.Value(machine.placed(inputs, self._dtype, self._device))

    def run(self, placed: Any) -> np.ndarray:
        net = self._net
        if not self.setup.tuned:
            return net.predict(placed, self._device)
        # The call of the library inside `eval`, whose checks of arguments take mnist_small a fifth of a query.
        frozen, inputs, output = self._frozen
        found: Dict[Any, Any] = {output: None}
        C.cntk_py.Function._forward(frozen, {inputs: placed}, found, self._device, set())
        return np.array(found[output].asarray())  # a copy, as `predict` says

    def fetch(self, found: np.ndarray) -> np.ndarray:
        return found

    def notes(self) -> Notes:
        return dict(super().notes(), **machine.notes(self.setup))
