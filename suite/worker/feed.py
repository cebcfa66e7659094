"""The input of an iteration: batches that stay on the device, or a stream that is read."""

import itertools
import os
import time
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from stagebench.suite.worker.case_parts import Input
from stagebench.suite.worker.contract import Batch, Setup
from stagebench.suite.worker.sources import Source
from stagebench.suite.worker.trainer import Trainer
from stagebench.suite.worker.view import InMemory, View, page_cache
from stagebench.workloads.graph import Graph

RESIDENT = 4  # batches in turn: a single one would be overfitted, and its gradients become subnormal
READ_AHEAD = 17  # batches that may be ready at any setting: MXNet's queue has 16
FILL_S = 10.0  # at most, for readers to read ahead as far as they can
NAMED = 5  # unreadable samples that a note names


class ResidentFeed:
    """A feed of batches that are put on the device once and used in turn."""

    reads = False

    def __init__(self, trainer: Trainer, batches: Sequence[Batch]) -> None:
        """Send the batches to the device."""
        self._batches = itertools.cycle([trainer.to_device(batch) for batch in batches])

    def read(self) -> Any:
        return None

    def place(self, batch: Any) -> Any:
        return next(self._batches)

    def drain(self) -> None:
        """Do nothing: no batch is read ahead."""

    def fill(self) -> None:
        """Do nothing: no batch is read."""

    def prepare(self) -> None:
        """Do nothing: no file is read."""

    def resident(self) -> "ResidentFeed":
        return self

    def notes(self) -> Dict[str, Any]:
        return {}


class Reading:
    """The data set of a rank, opened as its case's `input` says: the view, the page cache, skipped samples."""

    def __init__(self, source: Source, input: Input, setup: Setup, folder: str) -> None:
        """`folder` is the job's output folder."""
        self._cache, self._source = input.page_cache, source
        log = f"{folder}/skipped-{setup.rank}.txt"
        if os.path.exists(log):
            os.remove(log)  # an earlier attempt's
        if input.mode == "memory":
            source = InMemory(View(source, input._replace(repeat=1), setup.seed, log))
        self.view = View(source, input, setup.seed, log)

    def prepare(self) -> None:
        """Bring the page cache into the state that the case asks for; called before every pass."""
        page_cache(self._source.paths(), self._cache)

    def notes(self) -> Dict[str, Any]:
        """Return the name of the data, and the samples that were skipped so far."""
        skipped = self.view.skipped()
        if not skipped:
            return {"data": self.view.name}
        names = [f"{name} ({count} times)" for name, count in sorted(skipped.items())]
        return {
            "data": self.view.name,
            "skipped": {"samples": len(names), "reads": sum(skipped.values()), "which": names[:NAMED]},
        }


class StreamFeed:
    """A feed of real data, by the adapter's own reader."""

    reads = True

    def __init__(self, trainer: Trainer, reading: Reading) -> None:
        """The trainer's input must be open."""
        self.read, self.place = trainer.next_batch, trainer.to_device
        self.prepare, self.notes = reading.prepare, reading.notes
        self._trainer = trainer
        self._resident: Optional[ResidentFeed] = None
        self._batch_s: Optional[float] = None  # seconds that a batch takes if none is ready
        self._most, self._full = self._ahead(), False  # batches that readers read ahead, and whether they have

    def resident(self) -> ResidentFeed:
        """Return a feed of some of the stream's batches, copied: a reader may fill the same memory again."""
        if self._resident is None:
            batches = [self._trainer.as_numpy(self.read()) for _ in range(RESIDENT)]
            self._full = False
            self._resident = ResidentFeed(self._trainer, [Batch(*(np.array(part) for part in one)) for one in batches])
        return self._resident

    def drain(self) -> None:
        """Discard the batches that were read ahead, which would make the next steps look faster.

        It discards as many batches as may be ready, at most; once their pace is known, it stops at the second batch
        that had to be waited for.
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
        """Sleep until readers have read ahead as far as they can: they then do not work during the next steps.

        The time follows from the readers' pace, up to FILL_S: slower readers are waited for again the next time. A
        drain after it shows how many batches were ready.
        """
        if not self._full and self._batch_s is not None:
            seconds = self._most * self._batch_s
            time.sleep(min(FILL_S, seconds))
            self._full = seconds <= FILL_S

    def _ahead(self) -> int:
        """Return the number of batches that may be ready."""
        setup = self._trainer.setup
        return max(READ_AHEAD, setup.readers * (setup.prefetch + 1))


def synthetic(graph: Graph, samples: int, seed: Union[int, Sequence[int]]) -> Batch:
    """Return normal images, or uniform tokens, and uniform labels: the same for the same seed."""
    stream = np.random.RandomState(seed)
    shape = (samples,) + tuple(graph.input_shape)
    if graph.vocabulary:
        inputs = stream.randint(0, graph.vocabulary, shape).astype(np.int64)
    else:
        inputs = stream.standard_normal(shape).astype(np.float32)
    return Batch(inputs, stream.randint(0, graph.classes, (samples,) + graph.label_shape).astype(np.int64))


def own_synthetic(graph: Graph, samples: int, seed: int, replica: int) -> List[Batch]:
    """Return the batches of one network: other ones for each network, the same for the same seed and network."""
    return [synthetic(graph, samples, (seed, replica, number)) for number in range(RESIDENT)]


def share(batch: Batch, replica: int, samples: int) -> Batch:
    """Return the contiguous part of a global batch that belongs to one network."""
    part = slice(replica * samples, (replica + 1) * samples)
    return Batch(batch.inputs[part], batch.labels[part])
