"""Reading with tf.data: files and arrays in the order that every adapter follows, and TFRecord, packed and read.

Positions come from Python, some thousands at a time; all other work runs in a pool of `setup.readers` threads that only
this pipeline uses. The pool is smaller than the number of samples in flight, so that a large image delays no other
sample although the order is kept.

TFRecord holds photographs as encoded JPEGs with their labels. Every rank reads its share of each part, such that shares
differ by one sample at most; the parts were mixed when packed, and a buffer mixes again. An epoch ends before the next
begins.
"""

import atexit
import itertools
import os
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from stagebench.adapters.tensorflow.pixels import Pixels, decoded
from stagebench.suite.worker.contract import Setup
from stagebench.suite.worker.packed_set import Record, part_of
from stagebench.suite.worker.threaded import Reader, batches_of_indices
from stagebench.suite.worker.view import View

POSITIONS = 4096  # that Python provides at a time
IN_FLIGHT = 4  # samples begun and not yet delivered, per reader

Begin = Callable[[Any], Any]  # a pipeline -> its iterator
Explain = Callable[[int, Exception], OSError]  # (batches delivered before, the error) -> one that names the file


def refusal(source: Any) -> Optional[str]:
    """Return why tf.data does not read a source; None when it does."""
    if not isinstance(source, View):
        return "it gives samples one by one"
    if source.records is not None:
        return None
    if source.skip:
        return "unreadable samples are to be skipped"
    below = source.source
    if (below.files is None or below.photographs is None) and (below.arrays is None or source.random):
        return "it gives samples one by one"
    return None


def input_reader(view: View, setup: Setup, begin: Begin = iter) -> "TensorReader":
    """Return the reader of a view's files or arrays that `refusal` accepts."""
    source, pool = view.source, f"; a pool of {max(1, setup.readers)} threads"
    if source.arrays is not None:
        values = source.arrays[0]
        inputs = tf.constant(channels_last(values) if values.ndim == 4 else values)  # tokens have no channels
        labels = tf.constant(source.arrays[1], tf.int64)
        count = len(source.arrays[1])

        def take(batch: Any) -> Tuple[Any, Any]:
            indices = batch % count
            return tf.gather(inputs, indices), tf.gather(labels, indices)

        pipeline = mapped(take, positions(view, setup), setup.readers or None)
        words = f"tf.data: gathered from memory{pool}"
        return TensorReader(pipeline, setup, words, lambda _, error: OSError(str(error)), begin)

    files, photographs = source.files, source.photographs
    assert files is not None
    assert photographs is not None
    pixels = Pixels(photographs.how, photographs.crop, view.random, setup.seed)
    names = [path for path, _ in files]
    paths, classes = tf.constant(names), tf.constant([label for _, label in files], tf.int64)

    def read(position: Any) -> Tuple[Any, Any]:
        index = position % len(names)
        return pixels(tf.io.read_file(paths[index]), position), classes[index]

    def culprit(batches: int, error: Exception) -> OSError:
        """Read the batch's images again, each by Pillow, whose errors all adapters share, then by TensorFlow."""
        for position in next(itertools.islice(batches_of_indices(view, setup), batches, None)):
            path = names[view.index(position)]
            try:
                view.sample(position)
                pixels(tf.io.read_file(path), tf.constant(position, tf.int64))
            except OSError as found:
                return found
            except tf.errors.OpError as found:
                return OSError(f"cannot read the image {path}: {found.message}; replace it, or move it out of the set")
        return OSError(f"cannot read a batch of {view.name}: {error}")

    pipeline = mapped(read, positions(view, setup).unbatch(), under_way(setup))
    words = f"tf.data: decode_and_crop_jpeg, ScaleAndTranslate{pool}"
    return TensorReader(pipeline.batch(setup.batch, drop_remainder=True), setup, words, culprit, begin)


def channels_last(inputs: np.ndarray) -> np.ndarray:
    """Convert NCHW to NHWC at a 64-byte border, from where TensorFlow uses it without another copy; or keep tokens."""
    if inputs.ndim == 2:
        return inputs
    shape = tuple(inputs.shape[axis] for axis in (0, 2, 3, 1))
    room = np.empty(int(np.prod(shape)) * inputs.itemsize + 64, np.uint8)
    begin = -room.ctypes.data % 64
    made = room[begin : begin + len(room) - 64].view(inputs.dtype).reshape(shape)
    np.copyto(made, inputs.transpose(0, 2, 3, 1))
    return made


class TensorBatch(NamedTuple):
    """A host batch of TensorFlow's: images float32 (samples, height, width, channels), labels int64."""

    inputs: Any
    labels: Any


class TensorReader(Reader):
    """The batches of a pipeline that ends in batched (inputs, labels)."""

    def __init__(self, pipeline: Any, setup: Setup, words: str, explain: Explain, begin: Begin = iter) -> None:
        """Begin to read at once; `words` describe the reader."""
        if setup.readers:
            pipeline = pipeline.prefetch(setup.prefetch * setup.readers)
        self.words, self._explain, self._taken = words, explain, 0
        self.distributed = begin is not iter  # True: its batches are tf.distribute's
        with tf.device("CPU:0"):
            self._batches: Any = begin(pipeline.with_options(options(setup)))
        # While the interpreter ends, a thread that asks Python for positions never returns; the iterator waits for it.
        atexit.register(self.close)

    def next_batch(self) -> TensorBatch:
        """Return the next batch; OSError names an unreadable file."""
        return TensorBatch(*self.take(next))

    def take(self, function: Callable[[Any], Any]) -> Any:
        """Apply a function that takes one batch from the iterator; errors as of `next_batch`."""
        try:
            found = function(self._batches)
        except tf.errors.OpError as error:
            raise self._explain(self._taken, error) from None
        self._taken += 1
        return found

    def close(self) -> None:
        """Free the iterator, and with it its threads."""
        self._batches = iter(())
        atexit.unregister(self.close)


def options(setup: Setup) -> Any:
    """Fix the options that tf.data would choose."""
    chosen = tf.data.Options()
    chosen.deterministic = True
    chosen.autotune.enabled = False
    chosen.threading.private_threadpool_size = max(1, setup.readers)
    chosen.threading.max_intra_op_parallelism = 1
    chosen.experimental_optimization.map_parallelization = False  # or 0 readers become several
    chosen.experimental_optimization.inject_prefetch = False
    return chosen


def under_way(setup: Setup) -> Optional[int]:
    """Return how many samples are decoded at a time; None: one after the other, in the calling thread."""
    return IN_FLIGHT * setup.readers if setup.readers else None


def positions(view: View, setup: Setup) -> Any:
    """Return a data set of `batches_of_indices`, int64 (batch,); ValueError if there are too few samples."""
    batches = batches_of_indices(view, setup)
    first = next(batches)
    several = max(1, POSITIONS // setup.batch)

    def some() -> Iterator[np.ndarray]:
        rest = itertools.chain([first], batches)
        while True:
            yield np.array(list(itertools.islice(rest, several)), np.int64)

    spec = tf.TensorSpec([None, setup.batch], tf.int64)
    return tf.data.Dataset.from_generator(some, output_signature=spec).prefetch(1).unbatch()


def mapped(function: Callable[..., Any], samples: Any, at_once: Optional[int]) -> Any:
    """Apply a data set's `map`, without AutoGraph's rewriting."""
    return samples.map(tf.autograph.experimental.do_not_convert(function), num_parallel_calls=at_once)


FORM = "tfrecord"
FILE = "samples.tfrecord"  # of a part
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
}
INTERLEAVED = 8  # parts that are read in turns
MIXED = 1024  # encoded samples in the buffer that mixes them, per rank
BUFFER = 1 << 20  # bytes read at a time


def write(samples: Iterator[Record], folder: str) -> None:
    """Write one part: a tf.train.Example per sample, with the feature names of TensorFlow's ImageNet scripts."""
    with tf.io.TFRecordWriter(os.path.join(folder, FILE)) as writer:
        for sample in samples:
            name = sample.name.encode("utf-8", "surrogateescape")
            features = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample.encoded])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[sample.label])),
                "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def record_reader(view: View, setup: Setup, crop: int) -> TensorReader:
    """Read a packed set; ValueError when there are fewer samples than ranks."""
    if len(view) < setup.world:
        raise ValueError(f"{view.name} has fewer samples than there are ranks ({setup.world})")
    parts = view.records.parts
    pixels = Pixels(view.records.how, crop, view.random, setup.seed)

    def read(number: Any, record: Any) -> Tuple[Any, Any]:
        found = tf.io.parse_single_example(record, FEATURES)
        position = number * setup.world + setup.rank  # unique over epochs and ranks: random crops follow it
        return pixels(found["image/encoded"], position), found["image/class/label"]

    pipeline = mapped(read, shuffled(parts, setup).repeat().enumerate(), under_way(setup))
    words = (
        f"tf.data on TFRecord: {min(INTERLEAVED, len(parts))} parts in turns, a buffer of {MIXED} mixes; a pool "
        f"of {max(1, setup.readers)} threads"
    )
    batches = pipeline.batch(setup.batch, drop_remainder=True)
    return TensorReader(batches, setup, words, lambda _, error: broken_record(parts, pixels, error))


def shuffled(parts: List[str], setup: Setup) -> Any:
    """Return one epoch of this rank's encoded records, in another order each time."""
    files = tf.data.Dataset.from_tensor_slices(
        ([os.path.join(part, FILE) for part in parts], tf.constant(shares(parts, setup), tf.int64))
    ).shuffle(len(parts), seed=setup.seed, reshuffle_each_iteration=True)
    at_once = min(INTERLEAVED, len(parts))
    records = files.interleave(
        tf.autograph.experimental.do_not_convert(lambda path, share: opened(path).shard(setup.world, share)),
        cycle_length=at_once,
        block_length=1,
        num_parallel_calls=min(at_once, setup.readers) or None,
        deterministic=False if setup.readers else None,
    )
    return records.shuffle(MIXED, seed=setup.seed, reshuffle_each_iteration=True)


def opened(path: Any) -> Any:
    return tf.data.TFRecordDataset(path, compression_type="", buffer_size=BUFFER, num_parallel_reads=None)


def shares(parts: List[str], setup: Setup) -> List[int]:
    """Return this rank's first sample within each part: it has every world-th sample of the set."""
    begins, before = [], 0
    for part in parts:
        begins.append((setup.rank - before) % setup.world)
        before += part_of(part).samples
    return begins


def broken_record(parts: List[str], pixels: Pixels, error: Exception) -> OSError:
    """Return the error that names the file or image at which reading failed, by reading all again."""
    for part in parts:
        path, name = os.path.join(part, FILE), ""
        try:
            for record in opened(path):
                name = ""
                if not isinstance(error, tf.errors.DataLossError):
                    found = tf.io.parse_single_example(record, FEATURES)
                    name = found["image/filename"].numpy().decode("utf-8", "replace")
                    decoded(found["image/encoded"].numpy())  # Pillow's errors are a sentence
                    pixels(found["image/encoded"], tf.constant(0, tf.int64))
        except Exception as found:  # also Pillow's, of all kinds
            where = f"the image {name} of {path}" if name else f"the records {path}"
            reason = found.message if isinstance(found, tf.errors.OpError) else found
            return OSError(f"cannot read {where}: {reason}; remove the packed set and pack it again")
    return OSError(f"cannot read records: {error}")
