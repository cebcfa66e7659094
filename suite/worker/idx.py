"""MNIST's original files: the idx format of LeCun's page, plain or gzipped.

magic number (two zero bytes, the type's code, the number of dimensions),
each dimension as a big-endian 32-bit number, the values.
"""

import gzip
import os
import struct
from typing import Any, Optional, Tuple

import numpy as np

from suite.worker.unpacking import refuse_bomb

UNSIGNED_BYTES = 8  # the format's code; MNIST has no other
PARTS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def pair(folder: str, part: str = "train") -> Optional[Tuple[str, str]]:
    """Return the paths of a part's (images, labels) in a folder; None if one is missing."""
    names = [found(folder, name) for name in PARTS[part]]
    return (names[0], names[1]) if names[0] and names[1] else None


def found(folder: str, name: str) -> Optional[str]:
    """Return the path of that file; some copies have a dot for the last dash, or are gzipped. None if it is missing."""
    for stem in (name, name.replace("-idx", ".idx")):
        for path in (os.path.join(folder, stem), os.path.join(folder, stem + ".gz")):
            if os.path.isfile(path):
                return path
    return None


def shape_of(path: str) -> Tuple[int, ...]:
    """Return the dimensions that the header states; ValueError for a file of another kind."""
    with opened(path) as stream:
        return header(path, stream)


def read(path: str) -> np.ndarray:
    """Return the values, uint8; ValueError names a file that is no idx file or is cut short."""
    with opened(path) as stream:
        try:
            shape = header(path, stream)
            promised = 1
            for extent in shape:
                promised *= extent
            if packed(path):
                refuse_bomb(path, promised)
            # `read` allocates all the bytes that it is asked for at once, whatever the file holds.
            most = promised if packed(path) else min(promised, os.path.getsize(path))
            values = np.frombuffer(stream.read(most + 1), dtype=np.uint8)
        except EOFError:
            raise ValueError("%s is a gzip file that is cut short; fetch it again" % path)
    if values.size != promised:
        raise ValueError(
            "%s holds %d values, its header says %s; fetch it again" % (path, values.size, "x".join(map(str, shape)))
        )
    return values.reshape(shape)


def opened(path: str) -> Any:
    """Open the file, decompressing it as it is read."""
    return gzip.open(path, "rb") if packed(path) else open(path, "rb")


def packed(path: str) -> bool:
    """Return whether the file's name says that it is gzipped."""
    return path.endswith(".gz")


def header(path: str, stream: Any) -> Tuple[int, ...]:
    """Read the dimensions from the header of an open file; ValueError for a file of another kind."""
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] != UNSIGNED_BYTES or not 1 <= start[3] <= 4:
        raise ValueError("%s is no idx file of bytes: it begins with %r; fetch it again" % (path, start))
    sizes = stream.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise ValueError("%s ends within its header; fetch it again" % path)
    return struct.unpack(">%dI" % start[3], sizes)
