"""What an iteration eats: batches that stay on the device, or a stream that is read."""

import itertools
import time
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from suite.worker.contract import Batch
from suite.worker.reading import Reading
from suite.worker.trainer import Trainer
from workloads.graph import Graph

RESIDENT = 4  # batches in turn: a single one is learnt by heart, and its gradients sink into subnormal numbers
READ_AHEAD = 17  # batches that may lie ready at any setting: MXNet's queue has 16
FILL_S = 2.0  # at most, for readers to have read ahead what they can


class ResidentFeed:
    """Batches that are put on the device once and taken in turn."""

    reads = False

    def __init__(self, trainer: Trainer, batches: Sequence[Batch]) -> None:
        """Send the batches to the device."""
        self._batches = itertools.cycle([trainer.to_device(batch) for batch in batches])

    def read(self) -> Any:
        return None

    def place(self, batch: Any) -> Any:
        return next(self._batches)

    def drain(self) -> None:
        """Nothing is read ahead."""

    def fill(self) -> None:
        """Nobody reads."""

    def prepare(self) -> None:
        """Nothing is read."""

    def resident(self) -> "ResidentFeed":
        return self

    def notes(self) -> Dict[str, Any]:
        return {}


class StreamFeed:
    """Real data: the adapter's own reader."""

    reads = True

    def __init__(self, trainer: Trainer, reading: Reading) -> None:
        """The trainer's input must be open."""
        self.read, self.place = trainer.next_batch, trainer.to_device
        self.prepare, self.notes = reading.prepare, reading.notes
        self._trainer = trainer
        self._resident: Optional[ResidentFeed] = None
        self._batch_s: Optional[float] = None  # how long a batch takes when none lies ready
        self._most, self._full = self._ahead(), False  # batches that readers read ahead, and whether they have

    def resident(self) -> ResidentFeed:
        """Some of the stream's batches, copied: a reader may fill the same memory again."""
        if self._resident is None:
            batches = [self._trainer.as_numpy(self.read()) for _ in range(RESIDENT)]
            self._full = False
            self._resident = ResidentFeed(self._trainer, [Batch(*(np.array(part) for part in one)) for one in batches])
        return self._resident

    def drain(self) -> None:
        """Read away what was read ahead, which would flatter the next steps.

        As many batches as may lie ready at most; once their pace is known, no further than the second one that
        had to be waited for.
        """
        taken: List[float] = []
        full, self._full = self._full, False
        for _ in range(self._ahead()):
            begin = time.perf_counter()
            self._trainer.skip_batch()
            taken.append(time.perf_counter() - begin)
            if self._batch_s is not None and sum(one > self._batch_s / 2.0 for one in taken) == 2:
                if full:
                    self._most = len(taken)
                return
        last = taken[len(taken) // 2 :]
        self._batch_s = sum(last) / len(last)

    def fill(self) -> None:
        """Sleep until readers have read ahead what they can, by their pace: they work beside no step that follows.

        No longer than FILL_S. A drain that comes after it shows how many batches that were.
        """
        if not self._full and self._batch_s is not None:
            time.sleep(min(FILL_S, self._most * self._batch_s))
            self._full = True

    def _ahead(self) -> int:
        """Batches that may lie ready."""
        setup = self._trainer.setup
        return max(READ_AHEAD, setup.readers * (setup.prefetch + 1))


def synthetic(graph: Graph, samples: int, seed: Union[int, Sequence[int]]) -> Batch:
    """Normal images and uniform labels, the same for the same seed."""
    stream = np.random.RandomState(seed)
    images = stream.standard_normal((samples,) + tuple(graph.input_shape)).astype(np.float32)
    return Batch(images, stream.randint(0, graph.classes, samples).astype(np.int64))


def own_synthetic(graph: Graph, samples: int, seed: int, replica: int) -> List[Batch]:
    """One network's batches, like no other network's: the same for the same seed and network."""
    return [synthetic(graph, samples, (seed, replica, number)) for number in range(RESIDENT)]


def share(batch: Batch, replica: int, samples: int) -> Batch:
    """One network's contiguous part of a global batch."""
    part = slice(replica * samples, (replica + 1) * samples)
    return Batch(batch.images[part], batch.labels[part])
