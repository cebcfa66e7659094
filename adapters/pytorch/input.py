"""The input pipeline: files are read by torch's DataLoader, what lies in memory is gathered by torch.

The worker processes are spawned: a plain fork of this process, which already has threads
(gloo's, OpenMP's, perhaps MPI's), can hang. They watch a pipe and end when this process
does. DataLoader's own watch compares the parent's number with the one it saw at its
start: a worker whose rank died before that, or whose parent is a fork server, stays for
ever (seen with torch 2.13; a test keeps watch).
"""

import copy
import multiprocessing
import os
import threading
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from stagebench.adapters.pytorch.decoding import Decoder, Encoded, Files, ImageFiles, Pixels, packed
from stagebench.suite.worker.contract import Batch, Setup, Unsupported
from stagebench.suite.worker.photographs import Photographs
from stagebench.suite.worker.sources import Source
from stagebench.suite.worker.threaded import GatheringReader, Reader, batches_of_indices
from stagebench.suite.worker.view import View

# Labels travel as numbers: each tensor of a batch is a file descriptor that is passed on.
Samples = NamedTuple("Samples", [("inputs", Union[Tensor, Encoded]), ("labels", List[Any])])
DecoderOf = Callable[[Photographs], Decoder]


class SourceDataset(Dataset):
    """A source as a data set; a batch is fetched in one call."""

    def __init__(self, source: Source) -> None:
        """The source travels to the workers."""
        self._source = source

    def __getitems__(self, indices: List[int]) -> Any:
        """Return a batch's samples. An error travels as its text: DataLoader would bury it in a traceback."""
        try:
            return [self._source.sample(index) for index in indices]
        except OSError as error:
            return str(error)


def collated(read: Any, joined: Callable[[List[Any]], Any] = default_collate) -> Union[str, Samples]:
    """Return a batch of images that are `joined`, or why they cannot be read.

    torch's own way makes it in shared memory inside a worker.
    """
    if isinstance(read, str):
        return read
    inputs, labels = zip(*read)
    return Samples(joined(list(inputs)), list(labels))


def end_with(trainer: Any, worker: int) -> None:
    """Leave a worker when the other end of this pipe, the trainer's, is gone."""

    def watch() -> None:
        try:
            trainer.recv()
        except EOFError:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class LoaderReader(Reader):
    """`setup.readers` worker processes; with none, this process reads."""

    def __init__(self, source: Source, setup: Setup, encoded: bool = False) -> None:
        """Begin to read at once; `encoded`: the images are files, not decoded."""
        options: Dict[str, Any] = {}
        self.words = f"DataLoader, {setup.readers} processes"
        if setup.readers:
            watched, self._alive = multiprocessing.get_context("spawn").Pipe(duplex=False)
            options = {
                "multiprocessing_context": "spawn",
                "worker_init_fn": partial(end_with, watched),
                "prefetch_factor": setup.prefetch,
                "persistent_workers": True,
            }
        loader = DataLoader(
            SourceDataset(source),
            batch_sampler=batches_of_indices(source, setup),
            num_workers=setup.readers,  # each sets itself to one thread
            collate_fn=partial(collated, joined=packed) if encoded else collated,
            pin_memory=pinned(setup) and not encoded,  # a decoder reads on the host
            **options,
        )
        self._batches = iter(loader)

    def next_batch(self) -> Batch:
        read = next(self._batches)
        if isinstance(read, str):
            raise OSError(read)
        return Batch(read.inputs, torch.as_tensor(np.array(read.labels)))  # a number each, or an array of them

    def close(self) -> None:
        self._batches = iter(())


class DecodingReader(Reader):
    """Files are read by a `LoaderReader` and decoded on the device: its batches lie there, as bytes of centre crops."""

    def __init__(self, view: View, setup: Setup, decoder: DecoderOf) -> None:
        """Begin to read at once; Unsupported where there are no image files."""
        if view.source.files is None or view.source.photographs is None:
            raise Unsupported(f"decode = 'gpu' is for image files, and {view.name} has none; use decode = 'host'")
        self._decoder = decoder(view.source.photographs)
        self._files = LoaderReader(with_source(view, Files(view.source)), setup, encoded=True)
        only = ", which only read files; decoded by nvJPEG (torchvision) and scaled on the GPU"
        self.words = self._files.words + only

    def next_batch(self) -> Batch:
        batch = self._files.next_batch()
        return Batch(self._decoder(batch.inputs), batch.labels)

    def close(self) -> None:
        self._files.close()


class TensorReader(GatheringReader):
    """Batches taken out of tensors in memory; for a GPU into pinned memory, from where it copies them."""

    _images: Any
    _labels: Any

    def __init__(self, source: Source, setup: Setup) -> None:
        super().__init__(source, setup)
        self.words = "index_select of tensors in memory"
        self._images = torch.from_numpy(self._images)
        self._labels = torch.from_numpy(self._labels)
        self._pinned = pinned(setup)

    def next_batch(self) -> Batch:
        indices = torch.tensor([self._source.index(position) for position in next(self._indices)])
        if not self._pinned:
            return Batch(self._images.index_select(0, indices), self._labels.index_select(0, indices))
        # torch keeps pinned blocks and gives one out again only when the copy from it is done.
        inputs, labels = (
            torch.empty((len(indices), *each.shape[1:]), dtype=each.dtype, pin_memory=True)
            for each in (self._images, self._labels)
        )
        torch.index_select(self._images, 0, indices, out=inputs)
        torch.index_select(self._labels, 0, indices, out=labels)
        return Batch(inputs, labels)


def pinned(setup: Setup) -> bool:
    """Return whether a GPU copies batches."""
    return setup.device == "cuda" and torch.cuda.is_available()


class Labels(ImageFiles):
    """Image files of which this rank needs no images: labels with an empty image."""

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        """The file is not opened."""
        return np.empty((0,), np.float32), self._files[index][1]

    def augmented(self, index: int, stream: np.random.RandomState) -> Tuple[np.ndarray, int]:
        return self.sample(index)


def reader_of(view: View, setup: Setup, inputs: bool = True, decoder: Optional[DecoderOf] = None) -> Reader:
    """Return the fastest reader of a view; an ordinary user's has DataLoader decode and normalise by Pillow and NumPy.

    `inputs`: whether they are needed; files are opened all the same where unreadable ones are to be replaced.
    `decoder`: what decodes files on the device, instead of the readers.
    """
    if view.source.files is not None and not inputs and not view.skip:
        return LoaderReader(with_source(view, Labels(view.source)), setup)
    if decoder is not None:
        return DecodingReader(view, setup, decoder)
    if view.arrays is not None:
        return TensorReader(view, setup)
    if not setup.tuned or view.source.files is None:
        return LoaderReader(view, setup)
    reader = LoaderReader(with_source(view, Pixels(view.source)), setup)
    reader.words += ", scaled by torch, normalised on the device"
    return reader


def with_source(view: View, source: Source) -> View:
    """Return the view of another source of the same samples."""
    changed = copy.copy(view)
    changed.source = source
    return changed
