"""Inference by OpenVINO: the network as an ONNX model, compiled for the CPU.

Ratios of times, tuned to default, on one thread with AVX2: mnist_small 0.90 to 0.97, others 0.95 to 1.0. A request for
each query, in place of two that take turns, takes 1.5 times as long at batch 1 of mnist_small.
"""

import itertools
from typing import Any, Dict, Iterator, Tuple

import numpy as np
import openvino

from stagebench.suite.worker import onnx_network
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph

IN_FLIGHT = 2  # queries at once: a load begins one before it fetches the answers to another
Placed = Tuple[Any, np.ndarray]  # an infer request, and its samples


class OpenVinoPredictor(Predictor):
    """A predictor of one network on a CPU; when tuned, it compiles the network for each number of samples."""

    def start(self) -> Joined:
        setup = self.setup
        self.compiles = setup.tuned
        self._core = openvino.Core()
        # Without a hint, float32 is computed in bfloat16 on processors that have it.
        self._settings: Dict[str, Any] = {"INFERENCE_NUM_THREADS": setup.threads, "INFERENCE_PRECISION_HINT": "f32"}
        self._overlaps = setup.knobs.get("hint") == "throughput"
        if self._overlaps:
            self._settings.update(PERFORMANCE_HINT="THROUGHPUT", PERFORMANCE_HINT_NUM_REQUESTS=IN_FLIGHT)
        return Joined(0, 1, "none", {"openvino": openvino.get_version().partition("-")[0]})

    def load(self, graph: Graph, tensors: Arrays) -> None:
        self._model = self._core.read_model(onnx_network.trained(graph, tensors))
        self._requests: Dict[Tuple[int, ...], Iterator[Any]] = {}
        self._request((self.setup.batch, *graph.input_shape))

    def place(self, inputs: np.ndarray) -> Placed:
        return self._request(inputs.shape), inputs

    def run(self, placed: Placed) -> Any:
        request, inputs = placed
        if self._overlaps:
            request.start_async(inputs, share_inputs=True)
            return request
        request.infer(inputs, share_inputs=True, share_outputs=True)  # no thread to wake: 0.7 of mnist_small's time
        return _answers(request)

    def fetch(self, found: Any) -> np.ndarray:
        if not self._overlaps:
            return found  # type: ignore[no-any-return]
        found.wait()
        return _answers(found)

    def _request(self, shape: Tuple[int, ...]) -> Any:
        """Return a request of the model compiled for inputs of that shape: one that no query in flight uses."""
        shape = shape if self.setup.tuned else ()
        if shape not in self._requests:
            model = self._model.clone()
            if shape:
                model.reshape(shape)
            compiled = self._core.compile_model(model, "CPU", self._settings)
            count = IN_FLIGHT if self._overlaps else 1
            self._requests[shape] = itertools.cycle([compiled.create_infer_request() for _ in range(count)])
        return next(self._requests[shape])


def _answers(request: Any) -> np.ndarray:
    return np.array(request.get_output_tensor().data)  # a copy: the request writes its next answers there
