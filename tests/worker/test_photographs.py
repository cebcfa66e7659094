"""From a file's bytes to a network's input: scaled once, by the filter that is stated, whatever the file's size."""

import io
import struct
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from suite.worker.photographs import Photographs, refuse_huge
from tests.support.errors import raising
from workloads.catalogue import PHOTOGRAPHS


def triangle(length, begin, end, size):
    """Weights (size, length) of a triangle filter as wide as a pixel of the result, at least as one of the source."""
    scale = (end - begin) / size
    width = max(scale, 1.0)
    centres = begin + (np.arange(size)[:, None] + 0.5) * scale
    weights = np.maximum(0.0, 1.0 - np.abs(np.arange(length)[None] + 0.5 - centres) / width)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("size", [(1400, 1050), (500, 375), (300, 400), (256, 256), (90, 120)])
def test_the_centre_crop_is_what_preprocessing_states(size):
    image = pytest.importorskip("PIL.Image")
    noise = np.random.RandomState(0).randint(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    encoded = io.BytesIO()
    image.fromarray(noise).save(encoded, "PNG")  # whose pixels every decoder agrees on
    pixels = noise.astype(float)
    left, top, right, bottom = PHOTOGRAPHS.centre(size[0], size[1], 224)
    across, down = triangle(size[0], left, right, 224), triangle(size[1], top, bottom, 224)
    wanted = np.stack([down @ pixels[..., channel] @ across.T for channel in range(3)])
    photographs = Photographs(PHOTOGRAPHS, 224)
    found = photographs.centre(encoded.getvalue(), "noise.png")
    assert (found.shape, found.dtype) == ((3, 224, 224), np.float32)
    assert np.abs(photographs.levels(found) - wanted).max() < 1.1  # rounded to whole levels after each direction


def test_channels_are_normalised_each_by_its_own_mean_and_deviation():
    photographs = Photographs(PHOTOGRAPHS, 2)
    red = np.zeros((2, 2, 3), np.uint8) + np.array([255, 0, 0], np.uint8)
    found = photographs.normalised(red)[:, 0, 0]
    assert found == pytest.approx([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225], abs=1e-5)
    assert photographs.levels(photographs.normalised(red)) == pytest.approx(red.transpose(2, 0, 1), abs=1e-4)


def claimed(width, height):
    """A PNG that claims so many pixels, fewer than what Pillow refuses, and has none."""
    parts = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0), b"IDAT" + zlib.compress(b""))
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_pixels_that_a_file_cannot_hold_are_not_allocated(tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "it.png").write_bytes(claimed(9000, 9000))
    for file in (claimed(9000, 9000), str(tmp_path / "it.png")):
        with raising(OSError, "9000 x 9000", 53):
            Photographs(PHOTOGRAPHS, 224).centre(file, "it")
    refuse_huge(SimpleNamespace(size=(9000, 9000)), 4 << 20)  # a photograph of so many has such a size


def test_a_crop_larger_than_what_it_is_cut_from_is_refused():
    with raising(ValueError, 299, 256):
        Photographs(PHOTOGRAPHS, 299)
