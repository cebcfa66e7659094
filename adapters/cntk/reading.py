"""CNTK's own readers of records, and what reads all else.

Files as they stand are read by the suite's threads, in the order that all frameworks are to read alike: CNTK's
deserializer of images takes them in an order of its own, and scales by another filter (format `imagemap`); a
deserializer in Python (cntk.io.UserDeserializer) decodes in a single thread, and that thread aborts the process at its
end.

Oldest Python: 3.6.
"""

import os
from typing import Any, Tuple

import numpy as np

from adapters.cntk import binary, imagemap, packed
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.images import ImageReader
from adapters.cntk.minibatches import MinibatchReader, enough
from suite.worker.contract import Batch, Setup
from suite.worker.records import RecordSource
from suite.worker.threaded import ThreadedReader, batches_of_indices
from suite.worker.view import View

WINDOW_BYTES = 256 << 20  # of chunks that are held and mixed; packing has mixed the whole set already
TEXT_CHUNK_BYTES = 32 << 20  # CNTK's default


def opened(view: View, setup: Setup, device: Any) -> Tuple[Any, str]:
    """The reader for a view, reading already, and what to say of it."""
    if view.records is not None and view.records.form == imagemap.FORM:
        images = ImageReader(view.records, view.random, setup, device)
        return images, images.words
    if view.records is not None:
        reader = PackedReader(view.records, setup, device)
        name = DESERIALIZERS[view.records.form].__name__
        words = "cntk.io.MinibatchSource with %s: a thread of its own, always one batch ahead, %d MB of chunks held"
        return reader, words % (name, WINDOW_BYTES >> 20)
    if view.source.arrays is not None and not view.random:
        return GatheringReader(view, setup), "gathered from memory, by position"
    return ThreadedReader(view, setup), "threads; CNTK's image reader takes an order of its own (format 'imagemap')"


class PackedReader(MinibatchReader):
    """Records through CNTK's MinibatchSource."""

    def __init__(self, records: RecordSource, setup: Setup, device: Any) -> None:
        """Begin to read; OSError names a file that cannot be, ValueError a set of fewer chunks than ranks."""
        self._shape = records.shape
        path = packed.name_in(records.joined, records.form)
        super().__init__(path, setup, device, lambda: self._opened(records))

    def as_numpy(self, batch: Batch) -> Batch:
        """Copies, images in their shape."""
        return Batch(images_of(batch, self._shape).asarray(), labels_of(batch))

    def _opened(self, records: RecordSource) -> Any:
        chunk, chunks = CHUNKS[records.form](self._path, len(records), self._setup.world)
        enough(self._path, chunks, self._setup.world)
        streams = C.io.StreamDefs(
            images=C.io.StreamDef(field="images", shape=int(np.prod(records.shape))),
            labels=C.io.StreamDef(field="labels", shape=1),
        )
        deserializer = DESERIALIZERS[records.form](self._path, streams)
        if records.form == "ctf":
            deserializer["chunkSizeInBytes"] = C.cntk_py.SizeTWrapper(chunk)
        # With multithreaded_deserializer its threads get into each other's way in a chunk: an index out of range.
        return C.io.MinibatchSource(
            deserializer,
            max_sweeps=C.io.INFINITELY_REPEAT,
            randomize=True,
            randomization_window_in_chunks=max(1, WINDOW_BYTES // chunk),
            randomization_seed=self._setup.seed,
            multithreaded_deserializer=False,
        )


def images_of(batch: Batch, shape: Tuple[int, ...]) -> Any:
    """What PackedReader returned as an NDArrayView (samples, channels, height, width), where CNTK has it."""
    values = batch.images.data.data
    return values.as_shape((values.shape[0],) + tuple(shape))


def labels_of(batch: Batch) -> np.ndarray:
    """Its class numbers, copied."""
    return batch.labels.data.data.asarray().reshape(-1).astype(np.int64)


class GatheringReader:
    """Batches of arrays that lie in memory already."""

    def __init__(self, view: View, setup: Setup) -> None:
        """Nothing to begin."""
        assert view.source.arrays is not None
        self._images, self._labels = view.source.arrays
        self._view, self._batches = view, batches_of_indices(view, setup)

    def next_batch(self) -> Batch:
        """The samples at the next positions."""
        rows = [self._view.index(position) for position in next(self._batches)]
        return Batch(self._images.take(rows, axis=0), self._labels.take(rows))

    def close(self) -> None:
        """Nothing to stop."""


def text_chunks(path: str, samples: int, world: int) -> Tuple[int, int]:
    """(bytes of a chunk, number of chunks). Several ranks share chunks of a few samples; one takes CNTK's size."""
    size = os.path.getsize(path)
    if not size:
        raise ValueError("it is empty")
    chunk = TEXT_CHUNK_BYTES if world == 1 else max(1, binary.CHUNK_SAMPLES * size // samples)
    return chunk, -(-size // chunk)


def binary_chunks(path: str, samples: int, world: int) -> Tuple[int, int]:
    """(bytes of a chunk, number of chunks), as they were written."""
    with open(path, "rb") as stream:
        table = binary.table_of(stream)
    return max(1, table.header // max(1, len(table.rows))), len(table.rows)


CHUNKS = {"ctf": text_chunks, "cbf": binary_chunks}
DESERIALIZERS = {"ctf": C.io.CTFDeserializer, "cbf": C.io.CBFDeserializer}
