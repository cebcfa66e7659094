"""Reading with torch's DataLoader.

The worker processes are spawned: a plain fork of this process, which already has threads
(gloo's, OpenMP's, perhaps MPI's), can hang. They watch a pipe and end when this process
does. DataLoader's own watch compares the parent's number with the one it saw at its
start: a worker whose rank died before that, or whose parent is a fork server, stays for
ever (seen with torch 2.13; a test keeps watch).

Oldest Python: 3.6.
"""

import multiprocessing
import os
import threading
from functools import partial
from typing import Any, Iterator, List, Tuple, Union

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from suite.worker.sources import Source
from suite.worker.threaded import batches_of_indices
from suite.worker.trainer import Batch, Setup

Read = Union[str, List[Tuple[np.ndarray, int]]]  # samples, or why they cannot be read


class Samples(Dataset):
    """A source as a data set; a batch is fetched in one call."""

    def __init__(self, source: Source) -> None:
        """The source travels to the workers."""
        self._source = source

    def __getitems__(self, indices: List[int]) -> Read:
        """A batch's samples. An error travels as its text: DataLoader would bury it in a traceback."""
        try:
            return [self._source.sample(index) for index in indices]
        except OSError as error:
            return str(error)


def collated(read: Read) -> Any:
    """A batch of tensors, made in shared memory inside a worker."""
    return read if isinstance(read, str) else default_collate(read)


class IndexBatches:
    """The endless batches of indices of this rank, as DataLoader wants them."""

    def __init__(self, source: Source, setup: Setup) -> None:
        """See `suite.worker.threaded.batches_of_indices`."""
        self._source, self._setup = source, setup

    def __iter__(self) -> Iterator[List[int]]:
        """Epoch after epoch."""
        return batches_of_indices(self._source, self._setup)


def end_with(trainer: Any, worker: int) -> None:
    """In a worker: leave when the other end of this pipe, the trainer's, is gone."""

    def watch() -> None:
        try:
            trainer.recv()
        except EOFError:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class LoaderReader:
    """`setup.readers` worker processes; with none, this process reads."""

    def __init__(self, source: Source, setup: Setup) -> None:
        """Begin to read at once."""
        options: dict = {}
        if setup.readers:
            watched, self._alive = multiprocessing.get_context("spawn").Pipe(duplex=False)
            options = {
                "multiprocessing_context": "spawn",
                "worker_init_fn": partial(end_with, watched),
                "prefetch_factor": setup.prefetch,
                "persistent_workers": True,
            }
        loader = DataLoader(
            Samples(source),
            batch_sampler=IndexBatches(source, setup),
            num_workers=setup.readers,  # each sets itself to one thread
            collate_fn=collated,
            pin_memory=setup.device == "cuda" and torch.cuda.is_available(),
            **options,
        )
        self._batches = iter(loader)

    def next_batch(self) -> Batch:
        """The next batch as tensors; OSError names the file that cannot be read."""
        read = next(self._batches)
        if isinstance(read, str):
            raise OSError(read)
        return Batch(*read)

    def close(self) -> None:
        """Stop the workers."""
        self._batches = iter(())
