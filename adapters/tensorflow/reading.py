"""Reading files and arrays with tf.data, in the order that every adapter follows.

Oldest Python: 3.6.
"""

import itertools
from typing import Any, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from adapters.tensorflow.pipeline import TensorReader, mapped, positions, under_way
from adapters.tensorflow.pixels import Pixels
from adapters.tensorflow.records import from_records
from suite.worker.contract import Setup
from suite.worker.threaded import batches_of_indices
from suite.worker.view import View


def refusal(source: Any) -> Optional[str]:
    """Why tf.data does not read a source; None when it does."""
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


def reader(view: View, setup: Setup, crop: int) -> TensorReader:
    """What reads a view that `refusal` has nothing against; `crop` is the side of the network's input."""
    if view.records is not None:
        return from_records(view, setup, crop)
    return from_arrays(view, setup) if view.source.arrays is not None else from_files(view, setup)


def from_files(view: View, setup: Setup) -> TensorReader:
    """Decode a folder's images."""
    files, photographs = view.source.files, view.source.photographs
    assert files is not None
    assert photographs is not None
    pixels = Pixels(photographs.how, photographs.crop, view.random, setup.seed)
    paths, labels = tf.constant([path for path, _ in files]), tf.constant([label for _, label in files], tf.int64)

    def read(position: Any) -> Tuple[Any, Any]:
        index = position % len(files)
        return pixels(tf.io.read_file(paths[index]), position), labels[index]

    pipeline = mapped(read, positions(view, setup).unbatch(), under_way(setup))
    words = "tf.data: decode_and_crop_jpeg, ScaleAndTranslate; a pool of %d threads" % max(1, setup.readers)
    explain = Culprit(view, setup, [path for path, _ in files], pixels)
    return TensorReader(pipeline.batch(setup.batch, drop_remainder=True), setup, words, explain)


def from_arrays(view: View, setup: Setup) -> TensorReader:
    """Gather batches from memory."""
    found = view.source.arrays
    assert found is not None
    images, labels = tf.constant(channels_last(found[0])), tf.constant(found[1], tf.int64)
    count = len(found[1])

    def take(batch: Any) -> Tuple[Any, Any]:
        indices = batch % count
        return tf.gather(images, indices), tf.gather(labels, indices)

    pipeline = mapped(take, positions(view, setup), setup.readers or None)
    words = "tf.data: gathered from memory; a pool of %d threads" % max(1, setup.readers)
    return TensorReader(pipeline, setup, words, lambda _, error: OSError(str(error)))


def channels_last(images: np.ndarray) -> np.ndarray:
    """NCHW to NHWC, where TensorFlow takes it without another copy: it wants 64-byte borders."""
    shape = tuple(images.shape[axis] for axis in (0, 2, 3, 1))
    room = np.empty(int(np.prod(shape)) * images.itemsize + 64, np.uint8)
    begin = -room.ctypes.data % 64
    made = room[begin : begin + len(room) - 64].view(images.dtype).reshape(shape)
    np.copyto(made, images.transpose(0, 2, 3, 1))
    return made


class Culprit:
    """Finds the image that a batch failed at: TensorFlow's errors do not say where the bytes came from."""

    def __init__(self, view: View, setup: Setup, paths: List[str], pixels: Pixels) -> None:
        """What `from_files` reads."""
        self._view, self._setup, self._paths, self._pixels = view, setup, paths, pixels

    def __call__(self, batches: int, error: Exception) -> OSError:
        """The batch's images again, one by one: by Pillow, whose words every adapter has, else by TensorFlow."""
        batch = next(itertools.islice(batches_of_indices(self._view, self._setup), batches, None))
        for position in batch:
            path = self._paths[self._view.index(position)]
            try:
                self._view.sample(position)
                self._pixels(tf.io.read_file(path), tf.constant(position, tf.int64))
            except OSError as found:
                return found
            except tf.errors.OpError as found:
                return OSError("cannot read the image %s: %s; remove or replace it" % (path, found.message))
        return OSError("cannot read a batch of %s: %s" % (self._view.name, error))
