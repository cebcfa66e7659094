"""What an adapter reads: every reader that it declares delivers the samples that the plain source has."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stagebench.suite.data.reader_check import Check
from stagebench.suite.plugins import workloads
from stagebench_conformance import probe
from stagebench_conformance.base import Conformance

TURNED = Image.Exif()
TURNED[0x0112] = 6


class Reading(Conformance):
    """Needs the framework's environment."""

    @pytest.mark.usefixtures("forked")
    @pytest.mark.parametrize("kind", ["folder", "arrays"])
    def test_every_reader_delivers_the_same_samples(self, kind: str, tmp_path: Path) -> None:
        """Of the files as they stand, and of each record format that holds such a set, packed for it.

        What the machine lacks a library for (`Adapter.unreadable`) is left out here, as it is in plans.
        """
        if not self.it().capabilities.real_data or not self.cases():
            pytest.skip(f"{self.adapter} declares that it reads no data")
        interpreter = self.launch(self.plain(), tmp_path).interpreter
        name = probe.PICTURES if kind == "folder" else "mnist_small"
        source = photographs(tmp_path / "photographs") if kind == "folder" else digits(tmp_path / "digits.npz")
        (tmp_path / "check").mkdir()
        check = Check(source, workloads()[name], SAMPLES, tmp_path / "check")
        found = {each.format: each.problem for each in check.readers(self.it(), interpreter)}
        assert not any(found.values()), found
        assert set(found) == {"files", *(form.name for form in self.it().capabilities.formats if kind in form.kinds)}


# A file's suffix, Pillow's format and mode, and how it is saved: decoders treat most of them in their own ways.
KINDS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("jpg", "JPEG", "RGB", {"quality": 95}), ("jpg", "JPEG", "L", {"quality": 95}),
    ("jpg", "JPEG", "CMYK", {"quality": 95}), ("jpg", "JPEG", "YCCK", {"quality": 95}),
    ("jpg", "JPEG", "RGB", {"quality": 95, "keep_rgb": True}), ("jpeg", "JPEG", "RGB", {"progressive": True}),
    ("JPG", "JPEG", "RGB", {"quality": 95, "exif": TURNED}), ("jpg", "PNG", "RGB", {}), ("png", "JPEG", "RGB", {}),
    ("png", "PNG", "RGB", {}), ("png", "PNG", "L", {}), ("png", "PNG", "1", {}), ("png", "PNG", "RGBA", {}),
    ("png", "PNG", "LA", {}), ("png", "PNG", "P", {"transparency": bytes(range(256))}), ("png", "PNG", "I;16", {}),
    ("webp", "WEBP", "RGBA", {"lossless": True}), ("webp", "WEBP", "RGB", {"quality": 95}), ("bmp", "BMP", "RGB", {}),
    ("tif", "TIFF", "CMYK", {"compression": "tiff_lzw"}), ("tiff", "TIFF", "I;16", {}), ("gif", "GIF", "P", {}),
    ("gif", "GIF", "L", {"save_all": True, "append_images": [Image.new("L", (9, 9))]}), ("png", "GIF", "P", {}),
)  # fmt: skip
SAMPLES = len(KINDS)


def photographs(folder: Path) -> Path:
    """Files of two classes, one of every kind, wide and tall, of coloured squares: shifts and swapped channels show."""
    colours = np.random.RandomState(0)
    for index, (suffix, form, mode, options) in enumerate(KINDS):
        size = (5, 7, 3) if index % 2 else (7, 5, 3)
        pixels = np.kron(colours.randint(0, 256, size), np.ones((12, 12, 1))).astype(np.uint8)
        path = folder / f"class{index % 2}" / f"{index}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(pixels, form, mode, **options))
    return folder


def encoded(pixels: np.ndarray, form: str, mode: str, **options: Any) -> bytes:
    """Return RGB pixels as an image file in a mode; YCCK, which Pillow does not write, is CMYK with another marker."""
    if mode == "I;16":
        image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    elif mode == "YCCK":  # luminance and colours of the inks, stored as their negatives
        inks = [
            Image.fromarray(255 - np.asarray(band)) for band in Image.fromarray(255 - pixels).convert("YCbCr").split()
        ]
        image = Image.merge("CMYK", [*inks, Image.new("L", inks[0].size)])
    else:
        image = Image.fromarray(pixels).convert(mode, dither=Image.Dither.NONE, palette=Image.Palette.ADAPTIVE)
    written = io.BytesIO()
    image.save(written, form, **options)
    content = bytearray(written.getvalue())
    if mode == "YCCK":
        content[content.index(b"Adobe") + 11] = 2
    return bytes(content)


def digits(path: Path) -> Path:
    """An array file of noise."""
    noise = np.random.RandomState(1)
    images = noise.randint(0, 256, (SAMPLES, 28, 28)).astype(np.uint8)
    np.savez(path, images=images, labels=noise.randint(0, 10, SAMPLES))
    return path
