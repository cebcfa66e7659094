"""The preprocessing of `stagebench.workloads.catalogue` as a graph, from an image file's bytes to a network's input.

The same as `stagebench.suite.worker.photographs` does with Pillow: libjpeg's accurate transform; a triangle
filter as wide as a pixel of the result over a box of fractions of pixels (ScaleAndTranslate);
whole levels. Of a JPEG only the part that the filter reaches is decoded. Pillow decodes what TensorFlow reads
differently or not at all, and images that may be too large.
"""

import math
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from stagebench.suite.worker.array_files import FREE
from stagebench.suite.worker.photographs import PIXEL_BYTES, PNG_BITS, in_rgb, opened_image
from stagebench.workloads.catalogue import Preprocessing

TRIES = 10
PNG, PNG_SIDES = b"\x89PNG\r\n\x1a\n", 16  # a PNG's first bytes; the place of its width and height, 4 bytes each
Boxes = Callable[[Any, Any], Any]  # (width, height) -> left, top, right, bottom; all float64


class Pixels:
    """The preprocessing of one image; call it inside a function of TensorFlow's."""

    def __init__(self, how: Preprocessing, crop: int, random: bool, seed: int) -> None:
        """`crop` is the side of the network's input; `random` crops and flips follow `seed` and the position."""
        self._how, self._crop, self._random, self._seed = how, crop, random, seed
        # A row of pixels at a time, which is faster than broadcasting three numbers.
        self._mean, self._deviation = (np.tile(np.array(x, np.float32), crop) for x in (how.mean, how.deviation))

    def __call__(self, encoded: Any, position: Any) -> Any:
        """Return float32 (crop, crop, 3), normalised; InvalidArgumentError for a broken image."""
        if not self._random:
            return self._normalised(self._cut(encoded, self._centre))
        draws = tf.random.stateless_uniform(
            [TRIES + 1, 4], tf.stack([tf.constant(self._seed, tf.int64), position]), dtype=tf.float64
        )
        pixels = self._cut(encoded, lambda width, height: random_box(self._how, draws[:TRIES], width, height))
        flipped = tf.cond(draws[TRIES, 0] < self._how.flip, lambda: tf.reverse(pixels, [1]), lambda: pixels)
        return self._normalised(flipped)

    def _centre(self, width: Any, height: Any) -> Any:
        """Compute `Preprocessing.centre` when the graph runs."""
        side = tf.constant(self._how.resize, tf.float64)
        across = tf.where(width < height, side, tf.floor(width * side / height))
        down = tf.where(width < height, tf.floor(height * side / width), side)
        left, top = tf.floor((across - self._crop) / 2), tf.floor((down - self._crop) / 2)
        x, y = width / across, height / down
        return tf.stack([left * x, top * y, (left + self._crop) * x, (top + self._crop) * y])

    def _cut(self, encoded: Any, box_of: Boxes) -> Any:
        """Return float32 (crop, crop, 3) in levels from 0 to 255."""

        def unless_odd(alike: Any, sides: Any, decode: Callable[[], Any]) -> Any:
            small = tf.reduce_prod(tf.cast(sides, tf.float64)) * PIXEL_BYTES <= FREE
            return tf.cond(tf.logical_and(alike, small), decode, by_pillow)

        def jpeg() -> Any:
            shape = tf.image.extract_jpeg_shape(encoded)
            sides = tf.cast(shape[:2], tf.float64)
            return unless_odd(shape[2] < 4, sides, lambda: self._partly(encoded, sides, box_of(sides[1], sides[0])))

        def other() -> Any:
            begins = tf.equal(tf.strings.substr(encoded, 0, len(PNG)), PNG)
            return tf.cond(tf.logical_and(begins, tf.strings.length(encoded) > PNG_BITS), png, by_pillow)

        def png() -> Any:
            bits = tf.io.decode_raw(tf.strings.substr(encoded, PNG_BITS, 1), tf.uint8)[0]
            sides = tf.io.decode_raw(tf.strings.substr(encoded, PNG_SIDES, 8), tf.int32, little_endian=False)
            return unless_odd(tf.equal(bits, 8), sides, lambda: whole(tf.io.decode_png(encoded, channels=3)))

        def by_pillow() -> Any:
            return whole(tf.ensure_shape(tf.numpy_function(decoded, [encoded], tf.uint8), [None, None, 3]))

        def whole(pixels: Any) -> Any:
            sides = tf.cast(tf.shape(pixels)[:2], tf.float64)
            return pixels, box_of(sides[1], sides[0])

        return self._scaled(*tf.cond(tf.io.is_jpeg(encoded), jpeg, other))

    def _partly(self, encoded: Any, sides: Any, box: Any) -> Any:
        """Return (pixels of a JPEG around a box, the box within them)."""
        # The filter reaches one pixel of the result beyond the box; one more for decoding at an edge.
        reach = tf.maximum((box[2:] - box[:2]) / self._crop, 1.0) + 2.0
        begin = tf.maximum(tf.floor(box[:2] - reach), 0.0)
        end = tf.minimum(tf.math.ceil(box[2:] + reach), tf.reverse(sides, [0]))
        window = tf.cast(
            tf.gather(tf.concat([begin, end - begin], 0), [1, 0, 3, 2]), tf.int32
        )  # top, left, height, ...
        pixels = tf.io.decode_and_crop_jpeg(encoded, window, channels=3, dct_method="INTEGER_ACCURATE")
        return pixels, box - tf.tile(begin, [2])

    def _scaled(self, pixels: Any, box: Any) -> Any:
        scale = self._crop / (box[2:] - box[:2])
        crop = [self._crop, self._crop]
        found = tf.raw_ops.ScaleAndTranslate(
            images=pixels[tf.newaxis],
            size=crop,
            scale=tf.cast(tf.reverse(scale, [0]), tf.float32),
            translation=tf.cast(tf.reverse(-box[:2] * scale, [0]), tf.float32),
            kernel_type="triangle",
            antialias=True,
        )
        return tf.ensure_shape(found[0], [*crop, 3])

    def _normalised(self, levels: Any) -> Any:
        """Round to whole levels, as Pillow does, subtract the mean, divide by each channel's deviation."""
        rows = tf.reshape(tf.round(levels), [self._crop, 3 * self._crop])
        return tf.reshape((rows - self._mean) / self._deviation, [self._crop, self._crop, 3])


def decoded(encoded: bytes) -> np.ndarray:
    """Return uint8 (height, width, 3) by Pillow."""
    with opened_image(encoded) as image:
        return np.asarray(in_rgb(image))


def random_box(how: Preprocessing, draws: Any, width: Any, height: Any) -> Any:
    """Draw a box by area and aspect ratio; the largest centre square if no try fits.

    `draws`: float64 (tries, 4), uniform in [0, 1).
    """
    least, most = (math.log(x) for x in how.ratio)
    area = (how.area[0] + (how.area[1] - how.area[0]) * draws[:, 0]) * width * height
    ratio = tf.exp(least + (most - least) * draws[:, 1])
    across, down = tf.sqrt(area * ratio), tf.sqrt(area / ratio)
    left, top = draws[:, 2] * (width - across), draws[:, 3] * (height - down)
    fits = tf.logical_and(across <= width, down <= height)
    side = tf.minimum(width, height)
    square = tf.stack([(width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2])
    boxes = tf.stack([left, top, left + across, top + down], 1)
    return tf.where(tf.reduce_any(fits), boxes[tf.argmax(tf.cast(fits, tf.int32))], square)
