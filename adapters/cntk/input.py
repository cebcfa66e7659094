"""Readers of CNTK: records and image maps through its MinibatchSource, arrays in memory, files by the suite's threads.

Image files are read by the suite's threads, in the order that all frameworks share: CNTK's image deserializer takes
them in an order of its own, and scales by another filter (format `imagemap`); a deserializer in Python
(cntk.io.UserDeserializer) decodes in a single thread, and that thread aborts the process at its end.

CNTK's image reader decodes, scales and crops with OpenCV, in threads of OpenMP. It scales by INTER_LINEAR, from four
pixels however small the result; unscaled images are decoded to the same bytes as elsewhere. OpenCV's channels are blue,
green, red, and CNTK divides by no deviations: both are corrected when a batch is returned, which takes a fortieth of
the time of decoding it.
"""

import os
from typing import Any, Callable, List, Tuple

import numpy as np

from stagebench.adapters.cntk import imagemap, libraries, machine, packing
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.contract import Batch, Setup, Unavailable
from stagebench.suite.worker.packed_set import RecordSource
from stagebench.suite.worker.threaded import GatheringReader, Reader
from stagebench.workloads.catalogue import Preprocessing

WINDOW_BYTES = 256 << 20  # of chunks that are held and mixed; packing has mixed the whole set already
TEXT_CHUNK_BYTES = 32 << 20  # CNTK's default
DESERIALIZERS = {"ctf": C.io.CTFDeserializer, "cbf": C.io.CBFDeserializer}


class TakingReader(GatheringReader):
    """Batches of arrays in memory."""

    words = "gathered from memory, by position"

    def next_batch(self) -> Batch:
        rows = [self._source.index(position) for position in next(self._indices)]
        return Batch(self._images.take(rows, axis=0), self._labels.take(rows, axis=0))


class TooFew(ValueError):
    """A set has fewer chunks than there are ranks."""


class MinibatchReader(Reader):
    """Reads each sweep in another order, by the seed, and distributes whole chunks over the ranks.

    In a sweep all ranks together read every sample once. Shares differ by a chunk at most; a rank with fewer begins
    the next sweep earlier. A batch is CNTK's own memory, valid until the next call of `next_batch`: CNTK's thread then
    reads ahead into it.
    """

    def __init__(self, path: str, setup: Setup, device: Any, opened: Callable[[], Any]) -> None:
        """Begin to read `path` by the source that `opened` makes; OSError names an unreadable file."""
        self._path, self._setup, self._device = path, setup, device
        self._source: Any = self._naming_the_file(opened)
        self._streams: Any = (self._source.streams.images, self._source.streams.labels)

    def next_batch(self) -> Batch:
        return self._naming_the_file(self._next)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Free the source and its streams, which hold it: CNTK then ends its thread."""
        self._source = self._streams = None

    def _next(self) -> Batch:
        setup = self._setup
        found = self._source.next_minibatch(
            setup.batch * setup.world, device=self._device, num_data_partitions=setup.world, partition_index=setup.rank
        )
        if not found:
            raise ValueError(f"no samples came instead of {setup.batch}")
        inputs, labels = (found[stream] for stream in self._streams)  # once: a look-up costs a twentieth of a batch
        if inputs.num_samples != setup.batch:
            raise ValueError(f"a batch of {inputs.num_samples} samples came instead of {setup.batch}")
        return Batch(inputs, labels)

    def _naming_the_file(self, act: Callable[[], Any]) -> Any:
        """Return the result of `act`; an error names the file."""
        try:
            return act()
        except (MemoryError, TooFew):
            raise
        except Exception as error:  # CNTK raises many types, with a C++ stack below the first line
            reason = str(error).strip().split("\n")[0]
            raise OSError(f"cannot read the records {self._path}: {reason}; pack them again")


class PackedReader(MinibatchReader):
    """Records through CNTK's MinibatchSource."""

    def __init__(self, records: RecordSource, setup: Setup, device: Any) -> None:
        """Begin to read; OSError names an unreadable file, ValueError a set with fewer chunks than ranks."""
        self._shape = records.shape
        words = "cntk.io.MinibatchSource with %s: a thread of its own, always one batch ahead, %d MB of chunks held"
        self.words = words % (DESERIALIZERS[records.form].__name__, WINDOW_BYTES >> 20)
        path = packing.name_in(records.joined, records.form)
        super().__init__(path, setup, device, lambda: self._opened(records))

    def as_numpy(self, batch: Batch) -> Batch:
        return Batch(images_of(batch, self._shape).asarray(), labels_of(batch))

    def _opened(self, records: RecordSource) -> Any:
        path, world = self._path, self._setup.world
        if records.form == "ctf":
            size = os.path.getsize(path)
            if not size:
                raise ValueError("it is empty")
            # A few samples a chunk for several ranks, CNTK's size for one.
            chunk = TEXT_CHUNK_BYTES if world == 1 else max(1, packing.CHUNK_SAMPLES * size // len(records))
            chunks = -(-size // chunk)
        else:
            with open(path, "rb") as stream:
                table = packing.table_of(stream)
            chunks = len(table.rows)
            chunk = max(1, table.header // max(1, chunks))
        enough(path, chunks, world)
        streams = C.io.StreamDefs(
            images=C.io.StreamDef(field="images", shape=int(np.prod(records.shape))),
            labels=C.io.StreamDef(field="labels", shape=1),
        )
        deserializer = DESERIALIZERS[records.form](path, streams)
        if records.form == "ctf":
            deserializer["chunkSizeInBytes"] = C.cntk_py.SizeTWrapper(chunk)
        # With multithreaded_deserializer its threads conflict within a chunk: an index out of range.
        return C.io.MinibatchSource(
            deserializer,
            max_sweeps=C.io.INFINITELY_REPEAT,
            randomize=True,
            randomization_window_in_chunks=max(1, WINDOW_BYTES // chunk),
            randomization_seed=self._setup.seed,
            multithreaded_deserializer=False,
        )


class ImageReader(MinibatchReader):
    """Reads a map file's images through CNTK's MinibatchSource; batches are NumPy's, valid until the next one.

    With several readers random crops differ between runs: threads draw them in no fixed order.
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
        # Reused: a fresh array's page faults cost as much as the arithmetic.
        self._images = np.empty((setup.batch,) + self._shape, dtype=np.float32)
        imagemap.check(records.joined)
        readers = max(1, setup.readers)
        self.words = f"cntk.io.ImageDeserializer, {readers} thread(s) of OpenMP, always one batch ahead"
        machine.decoders(readers, setup.threads)
        path = imagemap.in_folder(records.joined).images
        super().__init__(path, setup, device, lambda: self._opened(records))

    def next_batch(self) -> Batch:
        """Return images in red, green, blue, normalised, and class numbers."""
        batch = super().next_batch()
        view = batch.inputs.data.data
        pixels = view.as_shape((view.shape[0],) + self._shape).asarray()
        np.subtract(pixels[:, ::-1], self._mean, out=self._images)
        np.divide(self._images, self._deviation, out=self._images)
        rows = batch.labels.data.data  # sparse and one-hot: CNTK's own conversion to an array is slow
        dense = C.NDArrayView(rows.shape, np.float32, device=self._device)
        dense.copy_from(rows)
        classes = dense.asarray().reshape(rows.shape[0], -1).argmax(axis=1).astype(np.int64)
        return Batch(self._images, classes)

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


def transforms(how: Preprocessing, crop: int, random: bool) -> List[Any]:
    """Return the preprocessing as CNTK's transforms; random crops are drawn by CNTK's generator."""
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


def images_of(batch: Batch, shape: Tuple[int, ...]) -> Any:
    """Return PackedReader's images as an NDArrayView (samples, channels, height, width), without a copy."""
    values = batch.inputs.data.data
    return values.as_shape((values.shape[0],) + tuple(shape))


def labels_of(batch: Batch) -> np.ndarray:
    return batch.labels.data.data.asarray().reshape(-1).astype(np.int64)


def enough(path: str, chunks: int, world: int) -> None:
    """Raise TooFew if there are fewer chunks than ranks."""
    if chunks < world:
        raise TooFew(f"{path} has {chunks} chunks, which is too few for {world} ranks; read it with format = 'files'")
