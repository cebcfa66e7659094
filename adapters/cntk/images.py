"""CNTK's own reader of images: its ImageDeserializer decodes, scales and cuts with OpenCV, in threads of OpenMP.

It takes an order of its own, and scales by a filter of its own (INTER_LINEAR, four pixels however small the result);
what is not scaled is decoded to the same bytes as everywhere. OpenCV's channels are blue, green, red, and CNTK has no
deviations to divide by: both are put right as a batch is handed over, which takes a fortieth of decoding it.

Oldest Python: 3.6.
"""

import ctypes
from typing import Any, List

import numpy as np

from adapters.cntk import imagemap, libraries
from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from adapters.cntk.minibatches import MinibatchReader, enough
from suite.worker.contract import Batch, Setup, Unavailable
from suite.worker.records import RecordSource
from workloads.preprocessing import Preprocessing

OPENMP = "libiomp5.so"  # CNTK's, loaded already


class ImageReader(MinibatchReader):
    """A map file's images through CNTK's MinibatchSource; batches are NumPy's, good until the next is asked for.

    With several readers random crops are not the same in every run: threads draw them as they come.
    """

    def __init__(self, records: RecordSource, random: bool, setup: Setup, device: Any) -> None:
        """Begin to read; Unavailable says which libraries lack, OSError names a file that cannot be read."""
        lacking = libraries.lacking()
        if lacking:
            raise Unavailable(libraries.remedy(lacking))
        how = records.how
        self._mean = np.array(how.mean, dtype=np.float32).reshape(-1, 1, 1)
        self._deviation = np.array(how.deviation, dtype=np.float32).reshape(-1, 1, 1)
        self._shape, self._random = tuple(records.input_shape), random
        # One for all: a fresh array's pages cost as much as the arithmetic.
        self._images = np.empty((setup.batch,) + self._shape, dtype=np.float32)
        imagemap.check(records.joined)
        readers = max(1, setup.readers)
        told = "cntk.io.ImageDeserializer, %d thread(s) of OpenMP, always one batch ahead"
        self.words = told % readers
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
