"""What an iteration eats: one batch that stays on the device, or a stream that is read."""

from typing import Any, Dict

import numpy as np

from suite.worker.contract import Batch
from suite.worker.reading import Reading
from suite.worker.trainer import Trainer
from workloads.graph import Graph


class ResidentFeed:
    """Synthetic data: generated once, put on the device once."""

    reads = False

    def __init__(self, trainer: Trainer, batch: Batch) -> None:
        """Send the batch to the device."""
        self._batch = trainer.to_device(batch)

    def read(self) -> Any:
        return None

    def place(self, batch: Any) -> Any:
        return self._batch

    def prepare(self) -> None:
        """Nothing is read."""

    def notes(self) -> Dict[str, Any]:
        return {}


class StreamFeed:
    """Real data: the adapter's own reader."""

    reads = True

    def __init__(self, trainer: Trainer, reading: Reading) -> None:
        """The trainer's input must be open."""
        self.read, self.place = trainer.next_batch, trainer.to_device
        self.prepare, self.notes = reading.prepare, reading.notes


def synthetic(graph: Graph, samples: int, seed: int) -> Batch:
    """Normal images and uniform labels, the same for the same seed."""
    stream = np.random.RandomState(seed)
    images = stream.standard_normal((samples,) + tuple(graph.input_shape)).astype(np.float32)
    return Batch(images, stream.randint(0, graph.classes, samples).astype(np.int64))


def share(batch: Batch, replica: int, samples: int) -> Batch:
    """One network's contiguous part of a global batch."""
    part = slice(replica * samples, (replica + 1) * samples)
    return Batch(batch.images[part], batch.labels[part])
