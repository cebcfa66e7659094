"""Images and labels from an .npz file, or from MNIST's original files; data that cannot train a network are refused.

MNIST's have the idx format of LeCun's page, plain or gzipped: a magic number (two zero bytes, the type's code, the
number of dimensions), each dimension as a big-endian 32-bit number, the values. A file is not trusted: no pickle is
read, and nothing is allocated that the file cannot hold.
"""

import gzip
import os
import struct
import zipfile
from typing import Any, Optional, Tuple

import numpy as np

from stagebench.workloads.graph import Shape, size

UNSIGNED_BYTES = 8  # the format's code; MNIST has no other
PARTS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def idx_files(folder: str, part: str = "train") -> Optional[Tuple[str, str]]:
    """Return the paths of a part's (images, labels) in a folder; None if one is missing."""
    names = [_idx_file(folder, name) for name in PARTS[part]]
    return (names[0], names[1]) if names[0] and names[1] else None


def _idx_file(folder: str, name: str) -> Optional[str]:
    """Return the path of that file; some copies have a dot for the last dash, or are gzipped. None if it is missing."""
    for stem in (name, name.replace("-idx", ".idx")):
        for path in (f"{folder}/{stem}", f"{folder}/{stem}.gz"):
            if os.path.isfile(path):
                return path
    return None


def idx_shape(path: str) -> Shape:
    """Return the dimensions that the header states; ValueError for a file of another kind."""
    with _idx_opened(path) as stream:
        return _idx_header(path, stream)


def read_idx(path: str) -> np.ndarray:
    """Return the values, uint8; ValueError names a file that is no idx file or is cut short."""
    with _idx_opened(path) as stream:
        try:
            shape = _idx_header(path, stream)
            promised = size(shape)
            if _gzipped(path):
                refuse_bomb(path, promised)
            # `read` allocates all the bytes that it is asked for at once, whatever the file holds.
            most = promised if _gzipped(path) else min(promised, os.path.getsize(path))
            values = np.frombuffer(stream.read(most + 1), dtype=np.uint8)
        except EOFError:
            raise ValueError(f"{path} is a gzip file that is cut short; fetch it again")
    if values.size != promised:
        raise ValueError(
            f"{path} holds {values.size} values, its header says {'x'.join(map(str, shape))}; fetch it again"
        )
    return values.reshape(shape)


def _idx_opened(path: str) -> Any:
    """Open the file, decompressing it as it is read."""
    return gzip.open(path, "rb") if _gzipped(path) else open(path, "rb")


def _gzipped(path: str) -> bool:
    """Return whether the file's name says that it is gzipped."""
    return path.endswith(".gz")


def _idx_header(path: str, stream: Any) -> Shape:
    """Read the dimensions from the header of an open file; ValueError for a file of another kind."""
    start = stream.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] != UNSIGNED_BYTES or not 1 <= start[3] <= 4:
        raise ValueError(f"{path} is no idx file of bytes: it begins with {start!r}; fetch it again")
    sizes = stream.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise ValueError(f"{path} ends within its header; fetch it again")
    return struct.unpack(f">{start[3]}I", sizes)


FREE = 1 << 28  # bytes that any file may become
DENSE = 100  # how many times its own size beyond them: pictures and measurements grow to less than ten times


def refuse_bomb(path: str, promised: int) -> None:
    """Raise ValueError for a file that promises more bytes than its own size lets one expect."""
    most = max(FREE, DENSE * os.path.getsize(path))
    if promised > most:
        raise ValueError(
            f"{path} promises {promised} bytes, and a file of its size unpacks to {most} at most; write it again "
            "unpacked"
        )


NAMES = ("images", "labels")
LAST = 2**31 - 1  # the largest label: frameworks take 32 bits
IMAGES, LABELS = "uif", "iu"  # NumPy's kinds of numbers
RATIO = 1100  # bytes that one byte of a deflated file unpacks to, at most


def loaded(path: str) -> Tuple[np.ndarray, np.ndarray]:
    """Return (images N x H x W, labels N), read completely; OSError or ValueError names the file and the problem."""
    images, labels = _read(path, _whole)
    refuse(path, images.shape, labels)
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise ValueError(f"{path} has pixels that are no numbers (NaN or infinite); correct the array 'images'")
    if images.min() == images.max():
        raise ValueError(f"{path} has the same value in every pixel, which teaches nothing; write it again")
    if images[0].size > 1 and (images.min(axis=(1, 2)) == images.max(axis=(1, 2))).all():
        raise ValueError(f"{path} has images of a single colour each, which show nothing; write them again")
    return images, labels


def described(path: str) -> Tuple[Shape, np.ndarray]:
    """Return (shape of the images, labels), as a plan needs them, without reading the images; errors as of `loaded`."""
    shape, labels = _read(path, _shape)
    refuse(path, shape, labels)
    return shape, labels


def refuse(path: str, shape: Shape, labels: np.ndarray) -> None:
    """Raise ValueError for images and labels that do not belong together, or that no classifier can learn."""
    if labels.dtype.kind not in LABELS:
        raise ValueError(f"{path} has labels of type {labels.dtype}; write them as whole numbers from 0")
    if labels.ndim != 1 or len(shape) != 3:
        raise ValueError(
            f"{path} holds images of shape {shape!r} and labels of shape {labels.shape!r}; N x H x W and N are needed"
        )
    if shape[0] != len(labels):
        raise ValueError(f"{path} holds {shape[0]} images and {len(labels)} labels; write one label for each image")
    if not labels.size or 0 in shape:
        raise ValueError(f"{path} holds no samples; write one image at least")
    if labels.min() < 0:
        raise ValueError(f"{path} has the label {labels.min()}; number the classes from 0")
    if labels.max() > LAST:
        raise ValueError(
            f"{path} has the label {labels.max()}, and frameworks count to {LAST}; number the classes from 0"
        )
    if labels.min() == labels.max():
        raise ValueError(f"{path} has the label {labels.min()} for every image; write images of two classes at least")


def _read(path: str, images: Any) -> Tuple[Any, np.ndarray]:
    try:
        if os.path.isdir(path):
            files = idx_files(path)
            if files is None:
                raise ValueError(
                    f"{path} holds neither {' and '.join(PARTS['train'])} nor their gzipped forms; put them there"
                )
            return (read_idx if images is _whole else idx_shape)(files[0]), read_idx(files[1])
        if not os.path.isfile(path):
            raise ValueError(f"{path} is no file; name an .npz file")
        with zipfile.ZipFile(path) as archive:
            absent = [name for name in NAMES if f"{name}.npy" not in archive.namelist()]
            if absent:
                raise ValueError(f"{path} holds no array named {' or '.join(absent)}; write both")
            return images(path, archive, "images", IMAGES), _whole(path, archive, "labels", IMAGES)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise a dozen kinds
        if isinstance(error, ValueError) and path in str(error):
            raise
        raise ValueError(f"{path} is no array file ({type(error).__name__}: {error}); write it with numpy.savez")


def _whole(path: str, archive: zipfile.ZipFile, name: str, kinds: str) -> np.ndarray:
    _shape(path, archive, name, kinds)
    with archive.open(f"{name}.npy") as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)


def _shape(path: str, archive: zipfile.ZipFile, name: str, kinds: str) -> Shape:
    """Return an array's shape from its header; ValueError if the file cannot hold it, or its values are no numbers."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError("%s: the array %r has NumPy's format %d.%d; write it again" % ((path, name) + version))
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(stream)
    if kind.kind not in kinds:
        raise ValueError(f"{path}: the array {name!r} is of type {kind}; write it as numbers")
    promised = kind.itemsize * size(shape)
    if (
        promised > member.file_size
        or member.file_size > RATIO * min(member.compress_size, os.path.getsize(path)) + 1024
    ):
        raise ValueError(f"{path}: the array {name!r} is cut short, of {shape!r} numbers; write it again")
    refuse_bomb(path, promised)
    return tuple(shape)
