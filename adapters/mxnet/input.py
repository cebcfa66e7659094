"""MXNet's input: RecordIO, packed and read by ImageRecordIter, image files by threads, arrays in memory by indexing.

Image files are decoded by the suite's threads: Gluon's DataLoader is slower, with threads and with processes
(tests/validation/mxnet_reader.py compares), and its processes are forked from one that has threads. NDArrayIter cannot
take an order. Batches are MXNet's arrays, over NumPy's memory where NumPy made them.

ImageRecordIter ends the process at a broken image, so packing decodes each image with it.
"""

from io import BytesIO
from typing import Any, Callable, Iterator, List, Tuple

import mxnet as mx
import numpy as np
from mxnet import recordio

from stagebench.adapters.mxnet.machine import contexts
from stagebench.adapters.mxnet.record_files import FORM, check, files_of, in_folder
from stagebench.suite.worker import photographs
from stagebench.suite.worker.contract import Batch, Setup, Unsupported
from stagebench.suite.worker.machine import cores
from stagebench.suite.worker.packed_set import Record, RecordSource
from stagebench.suite.worker.threaded import GatheringReader, Reader, ThreadedReader
from stagebench.suite.worker.view import View

AREA = 3  # OpenCV's averaging filter, the one closest to Pillow's
QUEUE = 16  # batches that ImageRecordIter decodes ahead; its own prefetch_buffer only sets how long they stay


def reader_of(view: View, setup: Setup) -> Reader:
    if view.records is not None:
        if view.records.form != FORM:
            raise Unsupported(f"MXNet does not read {view.records.form}")
        return RecordReader(view.records, view.random, setup)
    return FileReader(view, setup) if view.arrays is None else MemoryReader(view, setup)


class FileReader(ThreadedReader):
    """Image files, decoded by the suite's threads."""

    def __init__(self, view: View, setup: Setup) -> None:
        super().__init__(view, setup)
        self.words = f"threads, {setup.readers}" if setup.readers else "the training process"

    def next_batch(self) -> Batch:
        """Return samples in the order of positions; OSError names an unreadable file."""
        return over(super().next_batch())


class MemoryReader(GatheringReader):
    """Batches indexed from arrays in memory."""

    def __init__(self, view: View, setup: Setup) -> None:
        super().__init__(view, setup)
        self.words = "indexing of arrays in memory"
        self._labels = self._labels.astype(np.float32)

    def next_batch(self) -> Batch:
        return over(super().next_batch())


class RecordReader(Reader):
    """Reads by mx.io.ImageRecordIter, in its own order.

    It uses at most half of the processor's cores. With more readers than that, several iterators each read a share of
    the set, and each contributes a piece of every batch.
    """

    def __init__(self, source: RecordSource, random: bool, setup: Setup) -> None:
        """Begin to read at once; ValueError if there are too few samples, OSError names a broken file."""
        self._files = files_of(source)
        readers = max(1, setup.readers)  # it always has a thread
        pieces, threads = shares(readers, setup.batch, max(1, cores() // 2))
        check_samples(source, setup, pieces)
        check(self._files)
        options = dict(
            preprocessing(source, random),
            path_imgrec=self._files.records,
            path_imgidx=self._files.offsets,
            batch_size=setup.batch // pieces,
            preprocess_threads=threads,
            prefetch_buffer=readers * setup.prefetch,
            ctx="gpu",  # "cpu" decodes in the engine, ahead of nothing
            device_id=contexts(setup)[0].device_id if setup.device == "cuda" else -1,
            seed=setup.seed % 2**31,
            num_parts=setup.world * pieces,
        )
        numbers = range(setup.rank * pieces, (setup.rank + 1) * pieces)
        self._iterators = [self._call(mx.io.ImageRecordIter, part_index=number, **options) for number in numbers]
        self.words = f"ImageRecordIter, {pieces} of {threads} thread(s), up to {QUEUE} batches ahead"

    def next_batch(self) -> Batch:
        """Return a batch in pieces, valid until the next call; OSError names a broken file."""
        pieces = [self._call(following, iterator) for iterator in self._iterators]
        return Batch([piece.data[0] for piece in pieces], [piece.label[0] for piece in pieces])

    def close(self) -> None:
        del self._iterators[:]

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except mx.base.MXNetError as error:
            reason = str(error).strip().splitlines()[-1]
            raise OSError(f"cannot read {self._files.records}: {reason}; pack the set again") from None


def preprocessing(source: RecordSource, random: bool) -> dict:
    """Return the preprocessing as ImageRecordIter's options; random crops are drawn by its own generator."""
    how, options = source.how, {"data_shape": source.input_shape, "shuffle": True, "inter_method": AREA, "verbose": 0}
    for channel, mean, deviation in zip("rgb", how.mean, how.deviation):
        options.update({f"mean_{channel}": mean, f"std_{channel}": deviation})
    # A last batch is filled from the next epoch, which then lacks those samples.
    options.update(round_batch=True, label_width=1)
    if not random:
        return dict(options, resize=how.resize)
    options.update(random_resized_crop=True, min_random_area=how.area[0], max_random_area=how.area[1])
    return dict(options, min_aspect_ratio=how.ratio[0], max_aspect_ratio=how.ratio[1], rand_mirror=how.flip > 0)


def shares(readers: int, batch: int, most: int) -> Tuple[int, int]:
    """Return (iterators, threads of each): `readers` threads in all, if `most` per iterator and the batch allow it."""
    choices = [(count * min(most, readers // count), -count) for count in range(1, readers + 1) if batch % count == 0]
    threads, count = max(choices)
    return -count, threads // -count


def check_samples(source: RecordSource, setup: Setup, pieces: int) -> None:
    """Raise ValueError if an iterator's share of the set is smaller than its piece of a batch, or for a bad path."""
    count, piece = setup.world * pieces, setup.batch // pieces
    least = len(source) - (count - 1) * -(-len(source) // count)
    if least < piece:
        raise ValueError(
            f"{source.name} divides into {count} parts, the last of {max(0, least)} samples, and ImageRecordIter "
            f"fills batches of {piece} from each; use format = 'files', a smaller batch or fewer readers"
        )
    if set(source.path) & set(";#?"):
        raise ValueError(f"MXNet gives ; # and ? in {source.path} a meaning of its own; move the data")


def following(iterator: Any) -> Any:
    """Return the next batch, at an epoch's end the first of the next epoch."""
    try:
        return iterator.next()
    except StopIteration:
        iterator.reset()
        return iterator.next()


def over(batch: Batch) -> Batch:
    """Return MXNet's arrays over the memory of fresh NumPy arrays."""
    inputs, labels = np.ascontiguousarray(batch.inputs), batch.labels.astype(np.float32, copy=False)
    return Batch([mx.nd.from_numpy(inputs, zero_copy=True)], [mx.nd.from_numpy(labels, zero_copy=True)])


def joined(pieces: Any) -> Any:
    """Join a reader's pieces to one array; a NumPy array is returned as it is."""
    if not isinstance(pieces, list):
        return pieces
    return pieces[0] if len(pieces) == 1 else mx.nd.concat(*pieces, dim=0)


def as_numpy(pieces: List[Any]) -> np.ndarray:
    return np.concatenate([piece.asnumpy() for piece in pieces])


def pack(samples: Iterator[Record], folder: str) -> None:
    """Write one part: each image's bytes, label and number."""
    files = in_folder(folder)
    writer = recordio.MXIndexedRecordIO(files.offsets, files.records, "w")
    try:
        for sample in samples:
            header = recordio.IRHeader(0, float(sample.label), sample.number, 0)
            writer.write_idx(sample.number, recordio.pack(header, readable(sample.encoded or b"")))
    finally:
        writer.close()


def readable(encoded: bytes) -> bytes:
    """Return an image's bytes without Exif; as PNG if only Pillow can decode it, not OpenCV."""
    encoded = photographs.without_exif(encoded)
    try:
        mx.image.imdecode(encoded, flag=1).wait_to_read()
    except mx.base.MXNetError:
        written = BytesIO()
        with photographs.opened_image(encoded) as image:
            photographs.in_rgb(image).save(written, "PNG")
        return written.getvalue()
    return encoded
