"""The interface of readers, and the plain ones: with threads, and of arrays in memory."""

from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Deque, Iterator, List

import numpy as np

from stagebench.suite.worker.contract import Batch, Setup
from stagebench.suite.worker.sources import Source


class Reader(ABC):
    """A reader of one source for one trainer, ahead of it or not, from its making until it is closed."""

    words = ""  # the kind of reader, for the record's notes: "4 threads"

    @abstractmethod
    def next_batch(self) -> Any:
        """Wait for the next batch, endlessly, epoch after epoch; an error in reading is raised here."""

    def close(self) -> None:  # noqa: B027 - not every reader has begun something
        """Stop: on return its threads and processes have ended. Called once, also after an error."""


class ThreadedReader(Reader):
    """A reader that delivers batches in order, `setup.readers` threads decoding a batch each, a few batches ahead.

    Threads are enough: decoding libraries release the interpreter's lock.
    """

    def __init__(self, source: Source, setup: Setup) -> None:
        """Begin to read at once, unless there are no readers."""
        self._source = source
        self.words = f"{setup.readers} threads" if setup.readers else "the training thread"
        self._indices = batches_of_indices(source, setup)
        self._pool = ThreadPoolExecutor(setup.readers) if setup.readers else None
        self._ahead: Deque[Future] = deque()
        for _ in range(setup.prefetch * setup.readers):
            self._submit()

    def next_batch(self) -> Batch:
        """Wait for the next batch; the first error of a reader is raised here."""
        if self._pool is None:
            return self._read(next(self._indices))
        future = self._ahead.popleft()
        self._submit()
        batch: Batch = future.result()
        return batch

    def close(self) -> None:
        """Stop the threads and drop the batches that were read ahead."""
        if self._pool is not None:
            for future in self._ahead:
                future.cancel()
            self._pool.shutdown()
            self._ahead.clear()

    def _submit(self) -> None:
        assert self._pool is not None
        # A batch, not a sample: handing over costs more than reading a digit, and stacking is the thread's work too.
        self._ahead.append(self._pool.submit(self._read, next(self._indices)))

    def _read(self, indices: List[int]) -> Batch:
        return stacked([self._source.sample(index) for index in indices])


class GatheringReader(Reader):
    """A reader that takes whole batches out of arrays in memory, in the training thread.

    Handing them over from another thread would cost more than that.
    """

    def __init__(self, source: Source, setup: Setup) -> None:
        assert source.arrays is not None
        self.words = "batches taken out of memory"
        self._source = source
        self._indices = batches_of_indices(source, setup)
        self._images, self._labels = source.arrays

    def next_batch(self) -> Batch:
        """Return the next batch, a copy."""
        indices = [self._source.index(position) for position in next(self._indices)]
        return Batch(self._images[indices], self._labels[indices])


def batches_of_indices(source: Source, setup: Setup) -> Iterator[List[int]]:
    """Yield endless batches of indices for this rank's network, epoch after epoch.

    A short last batch of an epoch is filled from the next one.
    """
    if len(source) < setup.replicas:
        raise ValueError(f"{source.name} has fewer samples than there are ranks ({setup.replicas})")
    pending: List[int] = []
    epoch = 0
    while True:
        for index in source.order(epoch, setup.seed, setup.replica, setup.replicas):
            pending.append(index)
            if len(pending) == setup.batch:
                yield pending
                pending = []
        epoch += 1


def stacked(samples: list) -> Batch:
    """Join samples to a batch of NumPy arrays."""
    inputs, labels = zip(*samples)
    return Batch(np.stack(inputs), np.array(labels, dtype=np.int64))
