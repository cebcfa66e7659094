"""What CNTK reads: records and image maps through its MinibatchSource, and what reads all else.

Files as they stand are read by the suite's threads, in the order that all frameworks are to read alike: CNTK's
deserializer of images takes them in an order of its own, and scales by another filter (format `imagemap`); a
deserializer in Python (cntk.io.UserDeserializer) decodes in a single thread, and that thread aborts the process at its
end.

CNTK's image reader decodes, scales and cuts with OpenCV, in threads of OpenMP. It scales by a filter of its own
(INTER_LINEAR, four pixels however small the result); what is not scaled is decoded to the same bytes as everywhere.
OpenCV's channels are blue, green, red, and CNTK has no deviations to divide by: both are put right as a batch is handed
over, which takes a fortieth of decoding it.
"""

import ctypes
import os
from typing import Any, Callable, List, Tuple

import numpy as np

from adapters.cntk import imagemap, libraries, packing
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import Batch, Setup, Unavailable
from suite.worker.packed_set import RecordSource
from suite.worker.threaded import GatheringReader, Reader, ThreadedReader
from suite.worker.view import View
from workloads.preprocessing import Preprocessing

WINDOW_BYTES = 256 << 20  # of chunks that are held and mixed; packing has mixed the whole set already
TEXT_CHUNK_BYTES = 32 << 20  # CNTK's default
OPENMP = "libiomp5.so"  # CNTK's, loaded already
DESERIALIZERS = {"ctf": C.io.CTFDeserializer, "cbf": C.io.CBFDeserializer}


def reader_of(view: View, setup: Setup, device: Any) -> Reader:
    if view.records is not None and view.records.form == imagemap.FORM:
        return ImageReader(view.records, view.random, setup, device)
    if view.records is not None:
        return PackedReader(view.records, setup, device)
    if view.arrays is not None:
        return TakingReader(view, setup)
    reader = ThreadedReader(view, setup)
    reader.words = "threads; CNTK's image reader takes an order of its own (format 'imagemap')"
    return reader


class TakingReader(GatheringReader):
    """Batches of arrays that lie in memory already."""

    words = "gathered from memory, by position"

    def next_batch(self) -> Batch:
        rows = [self._source.index(position) for position in next(self._indices)]
        return Batch(self._images.take(rows, axis=0), self._labels.take(rows))


class TooFew(ValueError):
    """Some rank would get nothing."""


class MinibatchReader(Reader):
    """Every sweep in another order that the seed decides, whole chunks distributed over the ranks.

    All ranks' samples of a sweep are the set's, each once. Shares differ by a chunk at most; a rank with fewer
    begins the next sweep earlier. What is returned is CNTK's own memory, and good until the next batch is asked for:
    its thread then reads ahead into it.
    """

    def __init__(self, path: str, setup: Setup, device: Any, opened: Callable[[], Any]) -> None:
        """Begin to read `path` with what `opened` makes; OSError names a file that cannot be."""
        self._path, self._setup, self._device = path, setup, device
        self._source: Any = self._naming_the_file(opened)
        self._streams: Any = (self._source.streams.images, self._source.streams.labels)

    def next_batch(self) -> Batch:
        return self._naming_the_file(self._next)  # type: ignore[no-any-return]

    def close(self) -> None:
        """CNTK ends its thread with the source, which its streams hold too."""
        self._source = self._streams = None

    def _next(self) -> Batch:
        setup = self._setup
        found = self._source.next_minibatch(
            setup.batch * setup.world,
            device=self._device,
            num_data_partitions=setup.world,
            partition_index=setup.rank,
        )
        if not found:
            raise ValueError("no samples came instead of %d" % setup.batch)
        images, labels = (found[stream] for stream in self._streams)  # once: a look-up costs a twentieth of a batch
        if images.num_samples != setup.batch:
            raise ValueError("a batch of %d samples came instead of %d" % (images.num_samples, setup.batch))
        return Batch(images, labels)

    def _naming_the_file(self, act: Callable[[], Any]) -> Any:
        """What `act` returns; its error names the file."""
        try:
            return act()
        except (MemoryError, TooFew):
            raise
        except Exception as error:  # CNTK's are of many kinds, with the stack of its C++ below the first line
            reason = str(error).strip().split("\n")[0]
            raise OSError("cannot read the records %s: %s; pack them again" % (self._path, reason))


class PackedReader(MinibatchReader):
    """Records through CNTK's MinibatchSource."""

    def __init__(self, records: RecordSource, setup: Setup, device: Any) -> None:
        """Begin to read; OSError names a file that cannot be, ValueError a set of fewer chunks than ranks."""
        self._shape = records.shape
        words = "cntk.io.MinibatchSource with %s: a thread of its own, always one batch ahead, %d MB of chunks held"
        self.words = words % (DESERIALIZERS[records.form].__name__, WINDOW_BYTES >> 20)
        path = packing.name_in(records.joined, records.form)
        super().__init__(path, setup, device, lambda: self._opened(records))

    def as_numpy(self, batch: Batch) -> Batch:
        return Batch(images_of(batch, self._shape).asarray(), labels_of(batch))

    def _opened(self, records: RecordSource) -> Any:
        size_of = text_chunks if records.form == "ctf" else binary_chunks
        chunk, chunks = size_of(self._path, len(records), self._setup.world)
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


class ImageReader(MinibatchReader):
    """A map file's images through CNTK's MinibatchSource; batches are NumPy's, good until the next is asked for.

    With several readers random crops are not the same in every run: threads draw them as they come.
    """

    def __init__(self, records: RecordSource, random: bool, setup: Setup, device: Any) -> None:
        """Begin to read; Unavailable says which libraries are missing, OSError names a file that cannot be read."""
        missing = libraries.missing()
        if missing:
            raise Unavailable(libraries.remedy(missing))
        how = records.how
        self._mean = np.array(how.mean, dtype=np.float32).reshape(-1, 1, 1)
        self._deviation = np.array(how.deviation, dtype=np.float32).reshape(-1, 1, 1)
        self._shape, self._random = tuple(records.input_shape), random
        # One for all: a fresh array's pages cost as much as the arithmetic.
        self._images = np.empty((setup.batch,) + self._shape, dtype=np.float32)
        imagemap.check(records.joined)
        readers = max(1, setup.readers)
        self.words = "cntk.io.ImageDeserializer, %d thread(s) of OpenMP, always one batch ahead" % readers
        _threads_of_readers(readers, setup.threads)
        path = imagemap.in_folder(records.joined).images
        super().__init__(path, setup, device, lambda: self._opened(records))

    def next_batch(self) -> Batch:
        """Red, green, blue, normalised, and class numbers."""
        batch = super().next_batch()
        view = batch.images.data.data
        pixels = view.as_shape((view.shape[0],) + self._shape).asarray()
        np.subtract(pixels[:, ::-1], self._mean, out=self._images)
        np.divide(self._images, self._deviation, out=self._images)
        return Batch(self._images, self._classes(batch.labels.data.data))

    def _opened(self, records: RecordSource) -> Any:
        enough(self._path, len(records), self._setup.world)  # an image is a chunk
        streams = C.io.StreamDefs(
            images=C.io.StreamDef(field="image", transforms=transforms(records.how, self._shape[-1], self._random)),
            labels=C.io.StreamDef(field="label", shape=records.classes),
        )
        return C.io.MinibatchSource(
            C.io.ImageDeserializer(self._path, streams),
            max_sweeps=C.io.INFINITELY_REPEAT,
            randomize=True,
            randomization_seed=self._setup.seed,
            multithreaded_deserializer=True,
        )

    def _classes(self, rows: Any) -> np.ndarray:
        """Of sparse rows with a one: CNTK's own way to an array warns that it is slow, and is."""
        dense = C.NDArrayView(rows.shape, np.float32, device=self._device)
        dense.copy_from(rows)
        return dense.asarray().reshape(rows.shape[0], -1).argmax(axis=1).astype(np.int64)


def transforms(how: Preprocessing, crop: int, random: bool) -> List[Any]:
    """What the workload's preprocessing is called by CNTK; its numbers for random crops are its own."""
    kinds = C.io.transforms
    if not random:
        # "crop": the shorter side becomes `resize`, and the middle is kept
        whole = kinds.scale(how.resize, how.resize, 3, interpolations="linear", scale_mode="crop")
        return [whole, kinds.crop(crop_type="center", crop_size=crop)]
    cut = kinds.crop(
        crop_type="randomarea",  # flips half of them, too
        area_ratio=tuple(how.area),  # a job brings lists
        aspect_ratio=(how.ratio[0], 1.0),  # either way round
        jitter_type="uniratio",
    )
    return [cut, kinds.scale(crop, crop, 3, interpolations="linear")]


def _threads_of_readers(readers: int, threads: int) -> None:
    """Give `readers` threads to what CNTK starts from now on, which decodes, and leave this thread its own.

    Every batch is decoded by a new thread, and that takes OpenMP's default, which is read from the environment
    once, before anything of ours runs.
    """
    ctypes.CDLL(OPENMP).kmp_set_defaults(b"OMP_NUM_THREADS=%d" % readers)
    C.cntk_py.set_max_num_cputhreads(threads)


def images_of(batch: Batch, shape: Tuple[int, ...]) -> Any:
    """What PackedReader returned as an NDArrayView (samples, channels, height, width), where CNTK has it."""
    values = batch.images.data.data
    return values.as_shape((values.shape[0],) + tuple(shape))


def labels_of(batch: Batch) -> np.ndarray:
    return batch.labels.data.data.asarray().reshape(-1).astype(np.int64)


def text_chunks(path: str, samples: int, world: int) -> Tuple[int, int]:
    """(bytes of a chunk, number of chunks). Several ranks share chunks of a few samples; one takes CNTK's size."""
    size = os.path.getsize(path)
    if not size:
        raise ValueError("it is empty")
    chunk = TEXT_CHUNK_BYTES if world == 1 else max(1, packing.CHUNK_SAMPLES * size // samples)
    return chunk, -(-size // chunk)


def binary_chunks(path: str, samples: int, world: int) -> Tuple[int, int]:
    """(bytes of a chunk, number of chunks), as they were written."""
    with open(path, "rb") as stream:
        table = packing.table_of(stream)
    return max(1, table.header // max(1, len(table.rows))), len(table.rows)


def enough(path: str, chunks: int, world: int) -> None:
    """TooFew where there is not a chunk for every rank."""
    if chunks < world:
        raise TooFew(
            "%s has %d chunks, which is too few for %d ranks; read it with format = 'files'" % (path, chunks, world)
        )
