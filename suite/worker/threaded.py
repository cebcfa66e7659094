"""A plain reader with threads: decoding libraries release the interpreter's lock.

Oldest Python: 3.6.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Deque, Iterator, List

import numpy as np

from suite.worker.sources import Source
from suite.worker.trainer import Batch, Setup


class ThreadedReader:
    """Delivers batches in order, decoding `setup.readers` samples at a time, a few batches ahead."""

    def __init__(self, source: Source, setup: Setup) -> None:
        """Begin to read at once, unless there are no readers."""
        self._source, self._setup = source, setup
        self._indices = self._batches_of_indices()
        self._pool = ThreadPoolExecutor(setup.readers) if setup.readers else None
        self._ahead: Deque[List[Future]] = deque()
        for _ in range(setup.prefetch * setup.readers):
            self._submit()

    def next_batch(self) -> Batch:
        """Wait for the next batch; the first error of a reader is raised here."""
        if self._pool is None:
            return stacked([self._source.sample(index) for index in next(self._indices)])
        futures = self._ahead.popleft()
        self._submit()
        return stacked([future.result() for future in futures])

    def close(self) -> None:
        """Stop reading."""
        if self._pool is not None:
            for futures in self._ahead:
                for future in futures:
                    future.cancel()
            self._pool.shutdown()

    def _submit(self) -> None:
        assert self._pool is not None
        self._ahead.append([self._pool.submit(self._source.sample, index) for index in next(self._indices)])

    def _batches_of_indices(self) -> Iterator[List[int]]:
        return batches_of_indices(self._source, self._setup)


def batches_of_indices(source: Source, setup: Setup) -> Iterator[List[int]]:
    """Endless batches of this rank's indices, epoch after epoch; a short last batch runs into the next epoch."""
    if len(source) < setup.world:
        raise ValueError("%s has fewer samples than there are ranks (%d)" % (source.name, setup.world))
    pending: List[int] = []
    epoch = 0
    while True:
        for index in source.order(epoch, setup.seed, setup.rank, setup.world):
            pending.append(index)
            if len(pending) == setup.batch:
                yield pending
                pending = []
        epoch += 1


def stacked(samples: list) -> Batch:
    """Samples to a batch of NumPy arrays."""
    images, labels = zip(*samples)
    return Batch(np.stack(images), np.array(labels, dtype=np.int64))
