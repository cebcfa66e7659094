"""TensorFlow's trainer: one fused tf.function, alone or under a mirrored strategy.

Oldest Python: 3.6.
"""

import gc
from typing import Any, Dict, Iterator, List, Sequence

import numpy as np
import tensorflow as tf

from adapters.tensorflow import machine, reading, records, spread
from adapters.tensorflow.layout import Layout
from adapters.tensorflow.lower import Style, described
from adapters.tensorflow.net import COUNT, Net, macs
from adapters.tensorflow.programs import Programs, compiled
from adapters.tensorflow.updates import states
from suite.worker.trainer import Adam, Batch, Joined, Setup, Trainer
from workloads.graph import Graph

ONLY_FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


class TensorFlowTrainer(Trainer):
    """Trains a lowered graph on variables of its own."""

    def __init__(self, setup: Setup) -> None:
        """Resolve what "auto" means for this tuning."""
        super().__init__(setup)
        tuned = setup.tuning == "tuned"
        self._tuned = tuned
        self._knobs: Dict[str, Any] = {"xla": "auto", "layout": "auto", "pack_mb": "auto"}
        self._knobs.update(cross_device="auto", collective="auto")
        self._knobs.update(setup.knobs)
        automatic = {
            "xla": "update" if tuned else "off",
            "layout": "NCHW" if tuned and setup.device == "cuda" else "NHWC",
        }
        for name, value in automatic.items():
            if self._knobs[name] == "auto":
                self._knobs[name] = value
        self._spread: Any = None
        self._reader: Any = None
        self._reads = "none"
        self._variables: Dict[str, List[Any]] = {}  # by canonical name, one a device
        self._programs: Any = None
        self._tapes: Sequence[Any] = ()  # one a device, as what follows
        self._losses: Sequence[Any] = ()
        self._logits: Sequence[Any] = ()
        self._local: Any = None  # every device's own gradients
        self._averaged: Any = None

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Threads, devices, group."""
        setup = self.setup
        devices = machine.prepare(setup)
        self._spread = group = spread.make(setup, devices, self._knobs)
        versions = machine.versions(setup.device)
        return Joined(group.rank, group.world, group.transport, versions, len(group.devices))

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower and place; a second call starts afresh."""
        self._release()
        setup, layout = self.setup, self._knobs["layout"]
        self._graph, self._layout = graph, Layout(graph, layout)
        grouped = not any(layer.attrs.get("groups", 1) > 1 for layer in graph.layers) or machine.grouped_gradients(
            self._spread.devices[0], layout, setup.precision
        )
        self._style = Style(self._tuned, layout, setup.precision, grouped, self._layout.folded)
        self._variables = self._made(graph, weights)
        names = [parameter.name for parameter in graph.parameters]
        zeros = [
            [self._variable(np.zeros(self._variables[name][0].shape), False) for name in names]
            for _ in range(states(setup.optimiser))
        ]
        counts = self._variable(np.zeros((), np.int64), False, "int64")
        nets, users = [
            [self._net(index, training) for index in range(len(self._spread.devices))] for training in (True, False)
        ]
        own = [[[each[index] for each in kind] for kind in zeros] for index in range(len(nets))]
        self._programs = Programs(
            self._spread, nets, users, own, counts, setup.optimiser, self._knobs["xla"], self._tuned
        )

    def synchronize(self) -> None:
        """Wait for the devices; a CPU has done it already."""
        if self.setup.device == "cuda":
            tf.test.experimental.sync_devices()

    def close(self) -> None:
        """Stop the readers, leave the group."""
        if self._reader is not None:
            self._reader.close()
        self._release()
        if self._spread is not None:
            self._spread.close()

    # --- data ---------------------------------------------------------------

    def open_input(self, source: Any) -> None:
        """By tf.data what it can read; the rest with the suite's threads."""
        why = reading.refusal(source)
        if why is None:
            self._reader = reading.reader(source, self.setup, self._graph.input_shape[-1])
            self._reads = self._reader.words
        else:
            super().open_input(source)
            self._reads = "Pillow or NumPy, %d threads, not tf.data: %s" % (self.setup.readers, why)

    def as_numpy(self, batch: Any) -> Batch:
        """tf.data's batches are NHWC."""
        images = batch.images.numpy().transpose(0, 3, 1, 2) if tf.is_tensor(batch.images) else batch.images
        return super().as_numpy(Batch(images, batch.labels))

    def pack(self, form: str, samples: Iterator[Any], folder: str) -> None:
        """TFRecord."""
        records.write(samples, folder)

    def to_device(self, batch: Any) -> Batch:
        """Tensors in the network's layout and type, an equal contiguous share on every device."""
        devices = self._spread.devices
        share = len(batch.labels) // len(devices)
        images: List[Any] = []
        labels: List[Any] = []
        for index, device in enumerate(devices):
            part = slice(index * share, (index + 1) * share)
            own = batch if len(devices) == 1 else Batch(batch.images[part], batch.labels[part])
            with tf.device(device):
                images.append(tf.cast(self._laid_out(own.images), self.setup.precision))
                labels.append(tf.identity(own.labels))
        return Batch(tuple(images), tuple(labels))

    # --- the staged iteration -----------------------------------------------

    def forward(self, batch: Any) -> None:
        """The forward's function under an eager tape, which keeps what its backward reads."""

        def on(index: int) -> Any:
            with tf.device(self._spread.devices[index]), tf.GradientTape() as tape:
                loss, heads = self._programs.forward[index](batch.images[index], batch.labels[index])
            return tape, loss, heads[-1]

        self._tapes, self._losses, self._logits = zip(*self._spread.each(on))

    def backward(self) -> None:
        """The compiled backward, every device's own gradients."""

        def on(index: int) -> Any:
            with tf.device(self._spread.devices[index]):
                return self._tapes[index].gradient(self._losses[index], self._programs.watched[index])

        self._local = self._spread.each(on)
        self._tapes = ()

    def communicate(self) -> None:
        """All-reduce of all gradients; asked again, it averages the same ones again."""
        if self.setup.world * self.setup.devices > 1:
            self._averaged = self._programs.communicate(self._local)

    def update(self) -> None:
        """The optimiser; the gradients are let go."""
        self._programs.update(self._averaged or self._local)
        self._local = self._averaged = None

    # --- the native iteration -----------------------------------------------

    def step(self, batch: Any) -> None:
        """Forward, backward, exchange and update in one function."""
        self._losses = self._programs.step(*batch.images, *batch.labels)

    def step_alone(self, batch: Any) -> None:
        """The same function without the exchange."""
        if self.setup.world * self.setup.devices == 1:
            self.step(batch)
        else:
            self._losses = self._programs.step_alone(*batch.images, *batch.labels)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """This rank's own: the mean over its devices."""
        return sum(float(each) for each in self._losses) / len(self._losses)

    def logits(self) -> np.ndarray:
        """The last head's, of the last staged forward, in the samples' order."""
        return joined(self._logits)

    def predict(self, batch: Any) -> np.ndarray:
        """The last head's, with running statistics and without dropout."""
        return joined(self._programs.predict(batch.images))

    def gradients(self) -> Dict[str, np.ndarray]:
        """Between backward and update; of the first device, the same on all once they are averaged."""
        own = (self._averaged or self._local)[0]
        pairs = zip(self._graph.parameters, own)
        return {parameter.name: self._layout.canonical(parameter.name, each.numpy()) for parameter, each in pairs}

    def parameters(self) -> Dict[str, np.ndarray]:
        """With running statistics; copies, of the first device."""
        return {
            name: self._layout.canonical(name, own[0].numpy()) for name, own in self._variables.items() if name != COUNT
        }

    def parameter_count(self) -> int:
        """Of the first device's trainable variables."""
        return sum(int(np.prod(own[0].shape)) for own in self._variables.values() if own[0].trainable)

    def macs(self) -> int:
        """Counted on the operations of the traced forward of one sample, by the shapes of their operands."""
        channels, height, width = self._graph.input_shape
        shape = (1, height, width, channels) if self._knobs["layout"] == "NHWC" else (1, channels, height, width)
        sample = tf.TensorSpec(shape, self.setup.precision)
        traced = compiled(self._net(0, True).heads).get_concrete_function(sample)  # traced only: nothing runs
        return macs(traced.graph)

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over plain TCP, on the host."""
        return self._spread.maximum(value)

    def notes(self) -> Dict[str, Any]:
        """What was resolved and chosen."""
        notes: Dict[str, Any] = {name: self._knobs[name] for name in ("layout", "xla")}
        notes.update(described(self._style))
        if self._tuned and self._knobs["xla"] == "off":
            notes["optimiser"] = "ResourceApply" + ("Adam" if isinstance(self.setup.optimiser, Adam) else "Momentum")
        else:
            notes["optimiser"] = "assignments, %s" % (
                "compiled by XLA" if self._knobs["xla"] != "off" else "spelled out"
            )
        notes["split"] = (
            "staged runs a compiled forward under an eager tape, then its compiled backward, then the update, three "
            "functions instead of one; what that costs is staged over native"
        )
        notes["reader"] = self._reads
        if self.setup.device == "cuda":
            notes["steps"] = "TensorFlow has no device events: native steps are marked when they are asked for"
        if self._spread.strategy is not None:
            notes["exchange"] = self._spread.transport
        if self.setup.strategy == "multiworker_mirrored":
            notes["pack_mb"] = self._knobs["pack_mb"]
        return notes

    # --- inside -------------------------------------------------------------

    def _release(self) -> None:
        """Let go of what was built; functions and variables stand in reference cycles."""
        self._variables, self._tapes, self._losses, self._logits = {}, (), (), ()
        self._programs = self._local = self._averaged = None
        gc.collect()

    def _laid_out(self, images: Any) -> Any:
        """NumPy's NCHW, or tf.data's NHWC, as a tensor in the network's layout."""
        channels_last = self._knobs["layout"] == "NHWC"
        if not tf.is_tensor(images):
            return tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if channels_last else images)
        return images if channels_last else tf.transpose(images, [0, 3, 1, 2])

    def _made(self, graph: Graph, weights: Dict[str, np.ndarray]) -> Dict[str, List[Any]]:
        """Every variable by its canonical name, one a device."""
        made = {}
        for parameter in graph.parameters:
            made[parameter.name] = self._variable(self._layout.native(parameter.name, weights[parameter.name]), True)
        for name, shape in graph.buffers:
            made[name] = self._variable(np.full(shape, float(name.endswith("running_var"))), False)
        made[COUNT] = self._variable(np.zeros((), np.int64), False, "int64")
        return made

    def _variable(self, value: np.ndarray, trainable: bool, dtype: str = "") -> List[Any]:
        value = np.asarray(value, dtype=dtype or self.setup.precision)
        # Each device writes its own component, never the mirrored whole; the aggregation would apply to that.
        return self._spread.variables(lambda: tf.Variable(value, trainable=trainable, aggregation=ONLY_FIRST))

    def _net(self, index: int, training: bool) -> Net:
        own = {name: each[index] for name, each in self._variables.items()}
        setup = self.setup
        style = self._style._replace(training=training)
        return Net(self._graph, own, style, (setup.seed, setup.rank * setup.devices + index))


def joined(logits: Sequence[Any]) -> np.ndarray:
    """Every device's, in the samples' order; float32 as the contract says."""
    return np.concatenate([each.numpy() for each in logits]).astype(np.float32)
