"""Inference: the network as one tf.function over variables, retraced for each number of samples."""

from typing import Any, Dict, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow import machine
from stagebench.adapters.tensorflow.base import as_array
from stagebench.adapters.tensorflow.lower import Inputs, Tensor
from stagebench.adapters.tensorflow.net import Net, compiled, over_tokens
from stagebench.suite.worker.contract import Joined, chosen
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class TensorFlowPredictor(Predictor, machine.OnDevice):
    """A predictor of a network on one device."""

    compiles = True

    def start(self) -> Joined:
        self.devices = machine.prepare(self.setup)
        return Joined(0, 1, "none", machine.versions(self.setup.device))

    def load(self, graph: Graph, tensors: Arrays) -> None:
        self._answer: Any = None  # the last network
        self._traced: Dict[int, Any] = {}  # by samples: tf.function would take longer to find what to call
        own, tensors = for_inference(graph, tensors, fold=self.setup.tuned)
        self.lay_out(own, training=False)
        self._xla = chosen(self.setup, "xla", default="off", tuned="step" if over_tokens(own) else "off")
        self._make(own, {name: self.layout.native(name, tensor) for name, tensor in tensors.items()})

    def _make(self, graph: Graph, tensors: Arrays) -> None:
        """Make the function that answers, of tensors in TensorFlow's layout."""
        held = {name: self._held(tensor, self.devices[0]) for name, tensor in tensors.items()}
        net = Net(graph, held, self.style, (self.setup.seed, 0))
        self._answer = compiled(lambda inputs: net.heads(self._arranged(inputs))[-1], self._xla == "step")

    def _arranged(self, inputs: Inputs) -> Inputs:
        """Return what was placed in the network's layout: on a CPU images are turned here, NumPy takes longer."""
        turned = self.setup.device == "cpu" and inputs.shape.rank == 4 and self._images == "NHWC"
        return tf.transpose(inputs, [0, 2, 3, 1]) if turned else inputs

    def place(self, inputs: np.ndarray) -> Tuple[int, Inputs]:
        if self.setup.device == "cpu":  # there is nothing to copy to
            return len(inputs), tf.constant(inputs, self.setup.precision if inputs.ndim == 4 else tf.int64)
        with tf.device(self.devices[0]):
            return len(inputs), self.placed(inputs)

    def run(self, placed: Tuple[int, Inputs]) -> Tensor:
        samples, inputs = placed
        if samples not in self._traced:
            with tf.device(self.devices[0]):
                self._traced[samples] = self._answer.get_concrete_function(inputs)
        return self._traced[samples](inputs)

    def fetch(self, found: Tensor) -> np.ndarray:
        return as_array(found)

    def notes(self) -> Notes:
        filters = "constants of the graph" if self.setup.tuned else "variables"
        return dict(super().notes(), layout=self._images, xla=self._xla, filters=filters)

    def _held(self, tensor: np.ndarray, device: str) -> Any:
        """Return a variable; or, of a tuned network's filters, the array, which becomes a constant of the trace.

        oneDNN arranges constant filters once, those of variables in every query. On one thread of an AVX2 CPU
        ResNet-50 with one sample takes 0.67 of the default's time with constant filters, 1.35 with variables alone,
        0.93 to 1.0 if biases are constants too. Constant matrices are slower (mnist_small, 64 samples: 1.5) and take
        AlexNet 45 s to load.
        """
        tensor = np.asarray(tensor, self.setup.precision)
        if self.setup.tuned and tensor.ndim == 4:
            return tensor
        with tf.device(device):
            return tf.Variable(tensor, trainable=False)
