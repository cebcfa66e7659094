"""Inference: one jitted function of samples; the parameters of tuned networks on CPUs are constants of its program."""

from functools import partial
from typing import Any

import jax
import numpy as np

from stagebench.adapters.jax import machine
from stagebench.adapters.jax.lower import Array
from stagebench.adapters.jax.net import Logits, Net, Tensors
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph

# Bytes of parameters that XLA may compile into a program, where it turns them as its products read them: mnist_small
# takes a tenth to a quarter less time, ResNet-50 (98 MiB) a twentieth; AlexNet (233 MiB) takes as long, and four times
# as long to compile.
CONSTANT = 128 << 20


class JaxPredictor(machine.OnDevices, Predictor):
    """A network on one device; queries of each number of samples have a program."""

    compiles = True

    def start(self) -> Joined:
        self._choices = self._choices._replace(compared=False)  # comparisons are faster in the gradient alone
        self.open_devices()
        return Joined(0, 1, "none", machine.versions(self._devices))

    def load(self, graph: Graph, tensors: Arrays) -> None:
        self._last: Any = None  # what is computed last
        own, tensors = for_inference(graph, tensors, fold=self.setup.tuned)
        self._net = Net(own, self._choices)
        native = {name: self._net.native(name, tensor).astype(self._dtype) for name, tensor in tensors.items()}
        params = self._last = jax.device_put(native, self._devices[0])
        self._constant = self._choices.for_cpus and sum(tensor.nbytes for tensor in native.values()) <= CONSTANT
        answers = self._answers
        self._run = jax.jit(partial(answers, params)) if self._constant else partial(jax.jit(answers), params)

    def _answers(self, tensors: Tensors, inputs: Array) -> Logits:
        images = inputs.ndim == 4
        heads, _ = self._net.forward(tensors, tensors, self._net.arrange(inputs) if images else inputs, None)
        return heads[-1]

    def place(self, inputs: np.ndarray) -> Array:
        if self._choices.for_cpus:  # the program's call takes them as they are: half the time of mnist_small
            return inputs
        return jax.device_put(inputs, self._devices[0])

    def run(self, placed: Array) -> Logits:
        self._last = self._run(placed)
        return self._last

    def fetch(self, found: Logits) -> np.ndarray:
        return np.asarray(found, self._dtype)

    def synchronize(self) -> None:
        jax.block_until_ready(self._last)

    def notes(self) -> Notes:
        return dict(super().notes(), parameters="constants of the program" if self._constant else "arguments")
