"""Readers that leave batches in pinned host memory, from where a GPU fetches them by itself."""

from typing import Any, List, Type

import numpy as np
import torch

from suite.worker.contract import Batch, Setup
from suite.worker.sources import Source
from suite.worker.threaded import GatheringReader, Reader, ThreadedReader


def pinned(kind: Type[Reader]) -> Type[Reader]:
    """The reader of that kind, a ThreadedReader or a GatheringReader."""
    if issubclass(kind, ThreadedReader):
        return type("Pinned" + kind.__name__, (Copying, kind), {})
    return Gathering


class Copying(ThreadedReader):
    """The threads that read a batch copy it there."""

    def _read(self, indices: List[int]) -> Batch:
        parts = [torch.from_numpy(part) for part in super()._read(indices)]
        found = Batch(*(room(part.shape, part.dtype) for part in parts))
        for there, here in zip(found, parts):
            np.copyto(there.numpy(), here.numpy())  # torch would take threads of its own for it
        return found


class Gathering(GatheringReader):
    """Batches are taken out of memory into it."""

    def __init__(self, source: Source, setup: Setup) -> None:
        super().__init__(source, setup)
        self._images, self._labels = torch.from_numpy(self._images), torch.from_numpy(self._labels)

    def next_batch(self) -> Batch:
        indices = torch.tensor([self._source.index(position) for position in next(self._indices)])
        return Batch(*(self._taken(part, indices) for part in (self._images, self._labels)))

    def _taken(self, whole: Any, indices: Any) -> Any:
        found = room((len(indices),) + tuple(whole.shape[1:]), whole.dtype)
        return torch.index_select(whole, 0, indices, out=found)


def room(shape: Any, dtype: Any) -> Any:
    """Pinned where there is a GPU; torch gives a block out again only when the copy from it is done."""
    return torch.empty(shape, dtype=dtype, pin_memory=torch.cuda.is_available())
