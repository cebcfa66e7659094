"""The whole network on every device: alone, under MirroredStrategy or MultiWorkerMirroredStrategy.

Oldest Python: 3.6.
"""

import gc
from typing import Any, Dict, List, Sequence

import numpy as np
import tensorflow as tf

from adapters.tensorflow import spread
from adapters.tensorflow.net import COUNT, Net
from adapters.tensorflow.programs import Programs
from adapters.tensorflow.updates import states
from adapters.tensorflow.ways import Tensors, Way, joined, shares
from suite.worker.contract import Batch, Setup

ONLY_FIRST = tf.VariableAggregation.ONLY_FIRST_REPLICA


class Replicas(Way):
    """One fused tf.function over the devices of a `Spread`."""

    def __init__(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> None:
        """Join the group."""
        self._spread: Any = self.spread(setup, devices, knobs)
        super().__init__(setup, self._spread.devices, knobs)
        self.rank, self.world, self.transport = self._spread.rank, self._spread.world, self._spread.transport
        self._programs: Any = None
        self.release()

    def spread(self, setup: Setup, devices: List[str], knobs: Dict[str, Any]) -> Any:
        """Over which devices, and how gradients are averaged: see `spread.Spread`."""
        return spread.make(setup, devices, knobs)

    def _make(self, weights: Tensors) -> None:
        setup = self.setup
        for name, value, trainable in self.starts(weights):
            self.variables[name] = self._variable(value, trainable)
        self.variables[COUNT] = self._variable(np.zeros((), np.int64), False, "int64")
        names = [parameter.name for parameter in self.graph.parameters]
        zeros = [
            [self._variable(np.zeros(self.variables[name][0].shape), False) for name in names]
            for _ in range(states(setup.optimiser))
        ]
        counts = self._variable(np.zeros((), np.int64), False, "int64")
        nets, users = [[self._net(index, training) for index in range(len(self.devices))] for training in (True, False)]
        own = [[[each[index] for each in kind] for kind in zeros] for index in range(len(nets))]
        xla, tuned = self.knobs["xla"], setup.tuning == "tuned"
        self._programs = Programs(self._spread, nets, users, own, counts, setup.optimiser, xla, tuned)

    def release(self) -> None:
        """Functions and variables stand in reference cycles."""
        self.variables: Dict[str, List[Any]] = {}  # by canonical name, one a device
        self._programs = None
        self._tapes: Sequence[Any] = ()  # one a device, as what follows
        self._losses: Sequence[Any] = ()
        self._logits: Sequence[Any] = ()
        self.local: Any = None  # every device's own gradients
        self.averaged: Any = None
        gc.collect()

    def maximum(self, value: float) -> float:
        """Over plain TCP, on the host."""
        return self._spread.maximum(value)

    def close(self) -> None:
        """Leave the group."""
        self._spread.close()

    # --- training -------------------------------------------------------------

    def to_device(self, batch: Any) -> Batch:
        """An equal contiguous share on every device."""
        images: List[Any] = []
        labels: List[Any] = []
        for device, own in zip(self.devices, shares(batch, len(self.devices))):
            with tf.device(device):
                images.append(tf.cast(self.laid_out(own.images), self.setup.precision))
                labels.append(tf.identity(own.labels))
        return Batch(tuple(images), tuple(labels))

    def forward(self, batch: Any) -> None:
        """The forward's function under an eager tape, which keeps what its backward reads."""

        def on(index: int) -> Any:
            with tf.device(self.devices[index]), tf.GradientTape() as tape:
                loss, heads = self._programs.forward[index](batch.images[index], batch.labels[index])
            return tape, loss, heads[-1]

        self._tapes, self._losses, self._logits = zip(*self._spread.each(on))

    def backward(self) -> None:
        """The compiled backward, every device's own gradients."""

        def on(index: int) -> Any:
            with tf.device(self.devices[index]):
                return self._tapes[index].gradient(self._losses[index], self._programs.watched[index])

        self.local = self._spread.each(on)
        self._tapes = ()

    def communicate(self) -> None:
        """All-reduce of all gradients; asked again, it averages the same ones again."""
        if self.setup.world * self.setup.devices > 1:
            self.averaged = self._programs.communicate(self.local)

    def update(self) -> None:
        """The optimiser; the gradients are let go."""
        self._programs.update(self.averaged or self.local)
        self.local = self.averaged = None

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
        """Of all devices, in the samples' order."""
        return joined(self._logits)

    def predict(self, batch: Any) -> np.ndarray:
        """Likewise."""
        return joined(self._programs.predict(batch.images))

    def gradients(self) -> Tensors:
        """Of the first device, the same on all once they are averaged."""
        own = (self.averaged or self.local)[0]
        pairs = zip(self.graph.parameters, own)
        return {parameter.name: self.layout.canonical(parameter.name, each.numpy()) for parameter, each in pairs}

    def parameters(self) -> Tensors:
        """Of the first device."""
        return {
            name: self.layout.canonical(name, own[0].numpy()) for name, own in self.variables.items() if name != COUNT
        }

    def parameter_count(self) -> int:
        """Of the first device's trainable variables."""
        return sum(int(np.prod(own[0].shape)) for own in self.variables.values() if own[0].trainable)

    def heads(self, images: Any) -> List[Any]:
        """Of the first device."""
        return self._net(0, True).heads(images)

    def notes(self) -> Dict[str, Any]:
        """How it is split, and exchanged where it is."""
        notes: Dict[str, Any] = {"split": SPLIT}
        if self._spread.strategy is not None:
            notes["exchange"] = self.transport
        if self.setup.strategy == "multiworker_mirrored":
            notes["pack_mb"] = self.knobs["pack_mb"]
        return notes

    # --- inside -------------------------------------------------------------

    def _variable(self, value: np.ndarray, trainable: bool, dtype: str = "") -> List[Any]:
        value = np.asarray(value, dtype=dtype or self.setup.precision)
        # Each device writes its own component, never the mirrored whole; the aggregation would apply to that.
        return self._spread.variables(lambda: tf.Variable(value, trainable=trainable, aggregation=ONLY_FIRST))

    def _net(self, index: int, training: bool) -> Net:
        own = {name: each[index] for name, each in self.variables.items()}
        setup = self.setup
        style = self.style._replace(training=training)
        return Net(self.graph, own, style, (setup.seed, setup.rank * setup.devices + index))


SPLIT = (
    "staged runs a compiled forward under an eager tape, then its compiled backward, then the update, three "
    "functions instead of one; what that costs is staged over native"
)
