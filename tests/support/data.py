"""Data sets as small as they can be: arrays of noise, folders of photographs, and a file that is none.

Oldest Python: 3.6.
"""

import struct
import zlib

import numpy as np
import pytest

HEADER = b"IHDR" + struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)
# The beginning of a PNG that claims 30,000 x 30,000 pixels.
BOMB = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + HEADER + struct.pack(">I", zlib.crc32(HEADER))


def noise(path, count, side=28, classes=10):
    """An array file of square images; gives its path as text."""
    images = np.random.RandomState(0).randint(0, 256, (count, side, side)).astype(np.uint8)
    np.savez(str(path), images=images, labels=np.arange(count) % classes)
    return str(path)


def photographs(folder, classes, grid=(40, 50), tile=1):
    """JPEG files, so many of each class, of coloured squares of `tile` pixels; gives the folder."""
    image, stream = pytest.importorskip("PIL.Image"), np.random.RandomState(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = np.kron(stream.randint(0, 256, grid + (3,)), np.ones((tile, tile, 1))).astype(np.uint8)
            image.fromarray(pixels).save(str(folder / name / ("%d.jpg" % index)), quality=95)
    return folder
