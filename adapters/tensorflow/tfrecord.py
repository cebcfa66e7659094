"""TFRecord: photographs as encoded JPEGs with their labels, packed, and read with tf.data.

Every rank reads its share of each part, chosen so that shares differ by one sample at most; the
order is the parts' mixed order, mixed again by a buffer. An epoch ends before the next begins.
"""

import os
from typing import Any, Iterator, List, Tuple

import tensorflow as tf

from adapters.tensorflow.input import TensorReader, mapped, under_way
from adapters.tensorflow.pixels import Pixels
from suite.worker.contract import Setup
from suite.worker.packed_set import Record, part_of
from suite.worker.view import View

FORM = "tfrecord"
FILE = "samples.tfrecord"  # of a part
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
}
AT_ONCE = 8  # parts that are read in turns
MIXED = 1024  # encoded samples that wait to be drawn from, of this rank
BUFFER = 1 << 20  # bytes read at a time


def write(samples: Iterator[Record], folder: str) -> None:
    """One part, a tf.train.Example a sample, the features named as TensorFlow's own ImageNet scripts name them."""
    with tf.io.TFRecordWriter(os.path.join(folder, FILE)) as writer:
        for sample in samples:
            writer.write(example(sample).SerializeToString())


def example(sample: Record) -> Any:
    values = (sample.encoded, sample.label, sample.name.encode("utf-8", "surrogateescape"))
    features = {}
    for name, value in zip(FEATURES, values):
        if isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    return tf.train.Example(features=tf.train.Features(feature=features))


def record_reader(view: View, setup: Setup, crop: int) -> TensorReader:
    """Read a packed set; ValueError when there are fewer samples than ranks."""
    if len(view) < setup.world:
        raise ValueError("%s has fewer samples than there are ranks (%d)" % (view.name, setup.world))
    parts = view.records.parts
    pixels = Pixels(view.records.how, crop, view.random, setup.seed)

    def read(number: Any, record: Any) -> Tuple[Any, Any]:
        found = tf.io.parse_single_example(record, FEATURES)
        position = number * setup.world + setup.rank  # of its own in every epoch and rank: what crops follow
        return pixels(found["image/encoded"], position), found["image/class/label"]

    pipeline = mapped(read, shuffled(parts, setup).repeat().enumerate(), under_way(setup))
    words = "tf.data on TFRecord: %d parts in turns, a buffer of %d mixes; a pool of %d threads" % (
        min(AT_ONCE, len(parts)),
        MIXED,
        max(1, setup.readers),
    )
    batches = pipeline.batch(setup.batch, drop_remainder=True)
    return TensorReader(batches, setup, words, lambda _, error: culprit(parts, pixels, error))


def shuffled(parts: List[str], setup: Setup) -> Any:
    """One epoch of this rank's encoded records; another order every time."""
    files = tf.data.Dataset.from_tensor_slices(
        ([os.path.join(part, FILE) for part in parts], tf.constant(shares(parts, setup), tf.int64))
    ).shuffle(len(parts), seed=setup.seed, reshuffle_each_iteration=True)
    at_once = min(AT_ONCE, len(parts))
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
    """The place of this rank's first sample among each part's first ones: every world-th sample of the set is its."""
    begins, before = [], 0
    for part in parts:
        begins.append((setup.rank - before) % setup.world)
        before += part_of(part).samples
    return begins


def culprit(parts: List[str], pixels: Pixels, error: Exception) -> OSError:
    """The file, or the image in it, that reading failed at: the error itself says neither; all is read again."""
    for part in parts:
        path, name = os.path.join(part, FILE), ""
        try:
            for record in opened(path):
                name = ""
                if not isinstance(error, tf.errors.DataLossError):
                    found = tf.io.parse_single_example(record, FEATURES)
                    name = found["image/filename"].numpy().decode("utf-8", "replace")
                    pixels(found["image/encoded"], tf.constant(0, tf.int64))
        except tf.errors.OpError as found:
            where = "the image %s of %s" % (name, path) if name else "the records %s" % path
            return OSError("cannot read %s: %s; remove the set and pack it again" % (where, found.message))
    return OSError("cannot read records: %s" % error)
