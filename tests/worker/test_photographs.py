"""From a file's bytes to a network's input: scaled once, by the filter that is stated, whatever the file's size."""

import io
import struct
import zlib

import numpy as np
import pytest

from stagebench.suite.worker.photographs import FORMATS, Photographs, common, in_rgb, opened_image
from stagebench.workloads.catalogue import PHOTOGRAPHS
from tests.support.errors import raising


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


def test_channels_are_normalised_each_by_its_own_mean_and_deviation_of_a_crop_that_fits():
    with raising(ValueError, 299, 256):
        Photographs(PHOTOGRAPHS, 299)
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


def test_pixels_that_a_file_cannot_hold_are_not_allocated_and_a_large_photograph_of_one_colour_is_read(tmp_path):
    image, photographs = pytest.importorskip("PIL.Image"), Photographs(PHOTOGRAPHS, 224)
    (tmp_path / "it.png").write_bytes(claimed(9000, 9000))
    for file in (claimed(9000, 9000), str(tmp_path / "it.png")):
        with raising(OSError, "9000 x 9000", 53):
            photographs.centre(file, "it")
    with raising(OSError, "16000 x 12000", "178956970"):  # in a file of any size
        photographs.centre(claimed(16000, 12000), "it")
    large = written(image.new("L", (9100, 7400), 128), "JPEG", quality=30)
    assert np.ptp(photographs.decoded(large, "large", lambda width, height: (0, 0, 224, 224))) == 0


def written(image, form, **options):
    encoded = io.BytesIO()
    image.save(encoded, form, **options)
    return encoded.getvalue()


def of_mode(mode):
    """A ramp of 64 levels of grey."""
    image = pytest.importorskip("PIL.Image")
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (48, 1))
    if mode == "I;16":
        return image.fromarray(ramp.astype(np.uint16) * 257)
    return image.fromarray(ramp).convert("RGB").convert(mode)


@pytest.mark.parametrize(
    ("form", "mode", "alike"),
    [
        ("PNG", "L", True), ("PNG", "RGB", True), ("PNG", "LA", True), ("PNG", "RGBA", True), ("PNG", "P", True),
        ("PNG", "1", False), ("PNG", "I;16", False), ("JPEG", "L", True), ("JPEG", "RGB", True),
        ("JPEG", "CMYK", False), ("WEBP", "RGB", False), ("BMP", "RGB", False), ("TIFF", "RGB", False),
        ("TIFF", "CMYK", False), ("TIFF", "I;16", False), ("GIF", "P", False), ("GIF", "L", False),
    ],
)  # fmt: skip
def test_every_format_has_its_pixels_and_is_packed_as_one_that_all_decoders_read(form, mode, alike):
    encoded = written(of_mode(mode), form, **({"lossless": True} if form == "WEBP" else {}))
    with opened_image(encoded) as opened:
        assert opened.format in FORMATS
        found = np.asarray(in_rgb(opened), dtype=int)
    off = np.abs(found - np.asarray(of_mode("L"), dtype=int)[..., np.newaxis])
    assert off.max() <= {"1": 255, "P": 64}.get(mode, 2)
    packed = common(encoded)
    assert (packed == encoded) == alike
    with opened_image(packed) as opened:
        assert opened.format in ("JPEG", "PNG")
        np.testing.assert_array_equal(np.asarray(in_rgb(opened)), found)


@pytest.mark.parametrize(("form", "mode"), [("PPM", "RGB"), ("TIFF", "I"), ("TIFF", "F"), ("PCX", "L")])
def test_what_not_every_reader_reads_none_does(form, mode):
    with raising(OSError, "it") as refused:
        Photographs(PHOTOGRAPHS, 224).centre(written(of_mode("L").convert(mode), form), "it")
    assert form in str(refused.value) if form != "TIFF" else "32 bits" in str(refused.value)


def test_the_first_picture_of_an_animation_is_read():
    image = pytest.importorskip("PIL.Image")
    for form in ("GIF", "TIFF", "WEBP", "PNG"):
        two = {"save_all": True, "duration": 90, "append_images": [image.new("RGB", (64, 48), "red")]}
        moving = written(image.new("RGB", (64, 48), "blue"), form, **two)
        with opened_image(common(moving)) as opened:
            assert np.asarray(in_rgb(opened)).mean(axis=(0, 1)).argmax() == 2
