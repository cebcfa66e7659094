"""One network whose layers lie on several devices of this process: the strategy `model_parallel`.

Oldest Python: 3.6.
"""

import gc
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow.cutting import cuts
from adapters.tensorflow.line import Line
from adapters.tensorflow.net import COUNT
from adapters.tensorflow.parts import Part, PartPrograms
from adapters.tensorflow.updates import states
from adapters.tensorflow.ways import Tensors, Way, joined
from suite.worker.contract import Batch, Setup, Unsupported


class ModelParallel(Way):
    """Layers over devices; a batch goes through in `microbatches` pieces, one behind the other."""

    transport = "memory: activations between devices"

    def __init__(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> None:
        """The network comes with `build`."""
        super().__init__(setup, devices, knobs)
        self._pieces = int(knobs["microbatches"])
        self._line, self._programs, self._parts = Line(len(devices)), None, []  # type: Line, Any, List[Part]
        self.release()

    def _make(self, weights: Tensors) -> None:
        graph, count = self.graph, len(self.graph.layers)
        places = [0] + cuts(graph, len(self.devices)) + [count]
        self._between = list(zip(places, places[1:]))
        homes = {}
        for device, (begin, end) in zip(self.devices, self._between):
            for layer in graph.layers[begin:end]:
                homes.update(dict.fromkeys([each.name for each in layer.parameters], device))
                homes.update(dict.fromkeys([name for name, _ in layer.buffers], device))
        for name, value, trainable in self.starts(weights):
            self.variables[name] = self._variable(value, trainable, homes[name])
        self._masks = [self._variable(np.zeros((), np.int64), False, device, "int64") for device in self.devices]
        counts = [self._variable(np.zeros((), np.int64), False, device, "int64") for device in self.devices]
        self._parts, users = self._halves(True), self._halves(False)
        moments = [
            [
                [self._variable(np.zeros(each.shape), False, part.device) for each in part.trainable]
                for _ in range(states(self.setup.optimiser))
            ]
            for part in self._parts
        ]
        by_xla, kernels = self.knobs["xla"] == "update", self.style.fast and self.knobs["xla"] == "off"
        self._programs = PartPrograms(self._parts, users, moments, counts, self.setup.optimiser, by_xla, kernels)

    def release(self) -> None:
        """Functions and variables stand in reference cycles."""
        self.variables: Dict[str, Any] = {}  # by canonical name
        self._programs = None
        self._parts = []
        self._runs: Dict[Tuple[int, int], Any] = {}  # by part and piece: what the backward needs
        self._own: Dict[Tuple[int, int], Any] = {}  # likewise: gradients
        self._losses: Any = ()
        self._logits: Any = ()
        self._gradients: List[Any] = []  # a list a part
        self._idle: Dict[str, float] = {}
        gc.collect()

    def close(self) -> None:
        """End the threads."""
        self._line.close()

    # --- training -------------------------------------------------------------

    def to_device(self, batch: Any) -> Batch:
        """The pieces' images on the first device, their labels on the last."""
        share, rest = divmod(len(batch.labels), self._pieces)
        if rest:
            raise Unsupported("a batch of %d does not divide into %d microbatches" % (len(batch.labels), self._pieces))
        images, labels = [], []
        for piece in range(self._pieces):
            part = slice(piece * share, (piece + 1) * share)
            with tf.device(self.devices[0]):
                images.append(tf.cast(self.laid_out(batch.images[part]), self.setup.precision))
            with tf.device(self.devices[-1]):
                labels.append(tf.identity(batch.labels[part]))
        return Batch(tuple(images), tuple(labels))

    def forward(self, batch: Any) -> None:
        """A function a device and piece under an eager tape; with several pieces the devices work side by side."""

        def work(index: int, piece: int, given: Any) -> Any:
            part, forward = self._parts[index], self._programs.forward[index]
            with tf.device(part.device), tf.GradientTape() as tape:
                if index:
                    tape.watch(given)
                if part.last:
                    made, heads = forward(given, batch.labels[piece])
                    losses[piece], logits[piece] = made, heads[-1]
                else:
                    made = forward(given)
            self._waited(made)
            self._runs[index, piece] = tape, made, given
            return made

        losses, logits = [[None] * self._pieces for _ in range(2)]
        idle = self._line.run(range(len(self._parts)), [[each] for each in batch.images], work)
        self._idle, self._losses, self._logits = {"forward": idle}, losses, logits

    def backward(self) -> None:
        """The compiled backwards, from the last device to the first, then a device's mean over the pieces."""

        def work(index: int, piece: int, upstream: Any) -> Any:
            tape, made, given = self._runs[index, piece]
            upstream, own = self._parts[index].backward(tape, made, given, upstream)
            self._own[index, piece] = own
            self._waited(own)
            return upstream

        order = range(len(self._parts) - 1, -1, -1)
        self._idle["backward"] = self._line.run(order, [None] * self._pieces, work)
        self._gradients = []
        for index, part in enumerate(self._parts):
            with tf.device(part.device):
                self._gradients.append(self._programs.mean([self._own[index, piece] for piece in range(self._pieces)]))
        self._runs, self._own = {}, {}

    def update(self) -> None:
        """Every device its own layers."""
        self._programs.update(self._gradients)
        self._gradients = []

    def bubble(self) -> Optional[Dict[str, float]]:
        """The mean over the devices of what each one waited."""
        return self._idle if len(self.devices) > 1 else None

    def step(self, batch: Any) -> None:
        """All pieces, all devices and the update in one function."""
        self._losses = self._programs.step(batch.images, batch.labels)

    def step_alone(self, batch: Any) -> None:
        """There is no such step."""
        raise Unsupported("a network in parts exchanges activations within its forward and its backward")

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """The mean over the pieces."""
        return sum(float(each) for each in self._losses) / len(self._losses)

    def logits(self) -> np.ndarray:
        """Of all pieces, in the samples' order."""
        return joined(self._logits)

    def predict(self, batch: Any) -> np.ndarray:
        """Piece by piece."""
        return joined([self._programs.predict(images) for images in batch.images])

    def gradients(self) -> Tensors:
        """Of all parts."""
        names = [parameter.name for parameter in self.graph.parameters]
        own = [each for part in self._gradients for each in part]
        return {name: self.layout.canonical(name, each.numpy()) for name, each in zip(names, own)}

    def parameters(self) -> Tensors:
        """Of all parts."""
        return {name: self.layout.canonical(name, own.numpy()) for name, own in self.variables.items()}

    def parameter_count(self) -> int:
        """Of all parts' trainable variables."""
        return sum(int(np.prod(each.shape)) for part in self._parts for each in part.trainable)

    def heads(self, images: Any) -> List[Any]:
        """Through all parts."""
        values = [images]
        for part in self._parts:
            values = part.outputs(values)
        return values

    def notes(self) -> Dict[str, Any]:
        """Which layers lie where, and what the bubble is."""
        rows = []
        for device, (begin, end) in zip(self.devices, self._between):
            layers = self.graph.layers[begin:end]
            share = 100.0 * sum(layer.macs for layer in layers) / max(1, self.graph.macs)
            rows.append("%s: %s to %s (%.0f %%)" % (device, layers[0].name, layers[-1].name, share))
        return {"parts": "; ".join(rows), "microbatches": self._pieces, "bubble": BUBBLE, "split": SPLIT}

    # --- inside -------------------------------------------------------------

    def _halves(self, training: bool) -> List[Part]:
        """The parts, for training or for use."""
        style, seed = self.style._replace(training=training), (self.setup.seed, self.setup.rank)
        return [
            Part(self.graph, dict(self.variables, **{COUNT: masks}), style, seed, between, device)
            for between, device, masks in zip(self._between, self.devices, self._masks)
        ]

    def _variable(self, value: np.ndarray, trainable: bool, device: str, dtype: str = "") -> Any:
        value = np.asarray(value, dtype=dtype or self.setup.precision)
        with tf.device(device):
            return tf.Variable(value, trainable=trainable)

    def _waited(self, made: Any) -> None:
        """A GPU returns before it is done, and its time is to be its own: fetch a number of what it makes last."""
        if self.setup.device == "cuda":
            for each in tf.nest.flatten(made)[-1:]:
                tf.reshape(each, [-1])[:1].numpy()


BUBBLE = "of forward and backward: the mean over the devices of the time in which a device had nothing to do"
SPLIT = "staged runs a thread and compiled functions a device, native one function of all devices and pieces"
