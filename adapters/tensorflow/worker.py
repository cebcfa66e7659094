"""TensorFlow's trainer: threads, devices, data and notes; how it trains is one of the `ways`.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Iterator, Optional

import numpy as np
import tensorflow as tf

from adapters.tensorflow import machine, reading, records
from adapters.tensorflow.coordinated import Coordinated
from adapters.tensorflow.lower import described
from adapters.tensorflow.model_parallel import ModelParallel
from adapters.tensorflow.replicas import Replicas
from adapters.tensorflow.served import Served
from suite.worker.contract import Adam, Batch, Joined, Setup
from suite.worker.trainer import Trainer
from workloads.graph import Graph

# All others are replicas.
WAYS: Dict[str, Any] = {"coordinator": Coordinated, "model_parallel": ModelParallel, "parameter_server": Served}
ON_SERVERS = ("coordinator", "parameter_server")  # servers update
DEFAULTS: Dict[str, Any] = {
    "pack_mb": "auto",
    "cross_device": "auto",
    "collective": "auto",
    "microbatches": 1,
    "servers": 1,
}


class TensorFlowTrainer(Trainer):
    """Trains a lowered graph on variables of its own."""

    def __init__(self, setup: Setup) -> None:
        """Resolve what "auto" means for this tuning."""
        super().__init__(setup)
        tuned = setup.tuning == "tuned"
        self._tuned = tuned
        self._knobs: Dict[str, Any] = dict(DEFAULTS, xla="auto", layout="auto")
        self._knobs.update(setup.knobs)
        automatic = {
            "xla": "update" if tuned and setup.strategy not in ON_SERVERS else "off",
            "layout": "NCHW" if tuned and setup.device == "cuda" else "NHWC",
        }
        for name, value in automatic.items():
            if self._knobs[name] == "auto":
                self._knobs[name] = value
        self._way: Any = None
        self._reader: Any = None
        self._reads = "none"

    # --- life ---------------------------------------------------------------

    def start(self) -> Joined:
        """Threads, devices, group."""
        setup = self.setup
        devices = machine.prepare(setup, self._knobs["microbatches"])
        self._way = way = WAYS.get(setup.strategy, Replicas)(setup, devices, self._knobs)
        return Joined(way.rank, way.world, way.transport, machine.versions(setup.device), len(way.devices))

    def build(self, graph: Graph, weights: Dict[str, np.ndarray]) -> None:
        """Lower and place; a second call starts afresh."""
        self._way.release()
        self._graph = graph
        self._way.build(self.setup, graph, weights)

    def synchronize(self) -> None:
        """Wait for the devices; a CPU has done it already."""
        if self.setup.device == "cuda":
            tf.test.experimental.sync_devices()

    def close(self) -> None:
        """Stop the readers, leave the group."""
        if self._reader is not None:
            self._reader.close()
        if self._way is not None:
            self._way.release()
            self._way.close()

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

    # --- training: as the way has it ----------------------------------------------

    def to_device(self, batch: Any) -> Any:
        """Tensors in the network's layout and type."""
        return self._way.to_device(batch)

    def forward(self, batch: Any) -> None:
        """Keeping what the backward reads."""
        self._way.forward(batch)

    def backward(self) -> None:
        """Every device's own gradients."""
        self._way.backward()

    def communicate(self) -> None:
        """Of all gradients."""
        self._way.communicate()

    def update(self) -> None:
        """The optimiser; the gradients are let go."""
        self._way.update()

    def bubble(self) -> Optional[Dict[str, float]]:
        """Where a network is held in parts."""
        found: Optional[Dict[str, float]] = self._way.bubble()
        return found

    def step(self, batch: Any) -> None:
        """As fast as it goes."""
        self._way.step(batch)

    def step_alone(self, batch: Any) -> None:
        """The same without the exchange."""
        self._way.step_alone(batch)

    # --- evidence -----------------------------------------------------------

    def loss(self) -> float:
        """This rank's own."""
        found: float = self._way.loss()
        return found

    def logits(self) -> np.ndarray:
        """The last head's, of the last staged forward, in the samples' order."""
        return self._way.logits()

    def predict(self, batch: Any) -> np.ndarray:
        """The last head's, with running statistics and without dropout."""
        return self._way.predict(batch)

    def gradients(self) -> Dict[str, np.ndarray]:
        """Between backward and update."""
        found: Dict[str, np.ndarray] = self._way.gradients()
        return found

    def parameters(self) -> Dict[str, np.ndarray]:
        """With running statistics; copies."""
        found: Dict[str, np.ndarray] = self._way.parameters()
        return found

    def parameter_count(self) -> int:
        """Of the variables that are trained."""
        count: int = self._way.parameter_count()
        return count

    def macs(self) -> int:
        """Counted on the traced forward of one sample."""
        count: int = self._way.macs()
        return count

    # --- what the measuring loop needs ----------------------------------------

    def maximum(self, value: float) -> float:
        """Over plain TCP, on the host."""
        largest: float = self._way.maximum(value)
        return largest

    def begin_training(self) -> None:
        """Count what would disturb a speed."""
        self._way.begin_training()

    def notes(self) -> Dict[str, Any]:
        """What was resolved and chosen."""
        notes: Dict[str, Any] = {name: self._knobs[name] for name in ("layout", "xla")}
        notes.update(described(self._way.style))
        if self._tuned and self._knobs["xla"] == "off":
            notes["optimiser"] = "ResourceApply" + ("Adam" if isinstance(self.setup.optimiser, Adam) else "Momentum")
        else:
            notes["optimiser"] = "assignments, %s" % (
                "compiled by XLA" if self._knobs["xla"] != "off" else "spelled out"
            )
        notes["reader"] = self._reads
        if self.setup.device == "cuda":
            notes["steps"] = "TensorFlow has no device events: native steps are marked when they are asked for"
        notes.update(self._way.notes())
        return notes
