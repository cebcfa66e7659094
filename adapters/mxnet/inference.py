"""Inference: the hybridised network in predict mode. MXNet's engine is asynchronous: only `fetch` waits.

Two queries may be under way: a block's outputs are new arrays in every call, with `static_alloc` too.
"""

import gc
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd

from stagebench.adapters.mxnet import machine
from stagebench.adapters.mxnet.lower import Choices
from stagebench.adapters.mxnet.machine import Array, placed
from stagebench.adapters.mxnet.net import Net
from stagebench.suite.worker.contract import Joined
from stagebench.suite.worker.inference_graph import for_inference
from stagebench.suite.worker.member import Notes
from stagebench.suite.worker.peaks import Yardstick
from stagebench.suite.worker.predictor import Predictor
from stagebench.suite.worker.trainer import Arrays
from stagebench.workloads.graph import Graph


class MXNetPredictor(Predictor):
    """A predictor of a network on one device."""

    def start(self) -> Joined:
        self._contexts = machine.contexts(self.setup)
        return Joined(0, 1, "none", machine.versions())

    def load(self, graph: Graph, tensors: Arrays) -> None:
        self._net: Any = None  # the last network
        gc.collect()
        setup, tuned = self.setup, self.setup.tuned
        own, tensors = for_inference(graph, tensors, fold=tuned)
        # Only the gradient of MXNet's own LRN is wrong. LRN takes odd numbers of channels, and float32.
        sizes = [layer.attrs["size"] for layer in own.layers if layer.kind == "lrn"]
        native_lrn = setup.precision == "float32" and all(size % 2 for size in sizes)
        choices = Choices(native_lrn, tuned, setup.precision)
        self._net = Net(own, tensors, self._contexts, setup.precision, 0, choices)
        self._net.hybridize(backend=self._backend(), static_alloc=tuned, static_shape=tuned)
        self._dtype = "int32" if own.vocabulary else setup.precision

    def place(self, inputs: np.ndarray) -> Array:
        return placed(inputs, self._contexts[0], self._dtype)

    def run(self, placed: Array) -> Array:
        with autograd.predict_mode():
            return self._net(placed)[-1]

    def fetch(self, found: Array) -> np.ndarray:
        answer: np.ndarray = found.asnumpy()
        return answer

    def synchronize(self) -> None:
        mx.nd.waitall()

    def yardstick(self) -> Optional[Yardstick]:
        return super().yardstick() or machine.yardstick(self.setup, self._contexts)

    def notes(self) -> Notes:
        static = "static_alloc, static_shape" if self.setup.tuned else "dynamic"
        return dict(super().notes(), hybridize=static, backend=self._backend() or "none")

    def _backend(self) -> Optional[str]:
        """Return the backend that fuses layers: oneDNN's, which knows float32.

        On one thread of an AVX2 CPU it takes 0.90 to 0.97 of the time of a folded ResNet-50, 0.88 to 1.02 elsewhere.
        """
        setup = self.setup
        fused = setup.tuned and setup.device == "cpu" and setup.precision == "float32"
        has = setup.knobs.get("onednn") != "off" and mx.runtime.Features().is_enabled("MKLDNN")
        return "MKLDNN" if fused and has else None
