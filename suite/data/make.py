"""Data sets made from scikit-learn's photographs and digits and from Python's documentation, without a network.

Every image has a random stream of its own, so an interrupted run continues and ends with the same files.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

from stagebench.suite.data.sets import LOCK, Marker, Recipe, making, marker_file, marker_of
from stagebench.suite.errors import RequestError, StoreError, Unavailable
from stagebench.suite.files import write_whole
from stagebench.suite.text import installing
from stagebench.suite.worker.typed_json import store

QUALITY = 97


@dataclass(frozen=True)
class Photographs:
    """An image folder to make: ImageNet's layout, `images` per class, all of one size."""

    folder: Path
    classes: int = 10
    images: int = 20
    width: int = 500
    height: int = 375
    seed: int = 1

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.classes, self.images, self.width, self.height, self.seed, QUALITY)


def photographs(request: Photographs) -> Iterator[Path]:
    """Write the missing images, yielding each image's path once it exists.

    RequestError if the folder holds other files; StoreError if the disk refuses.
    """
    _refuse_other(request)
    originals = [Image.fromarray(array) for array in _sklearn().load_sample_images().images]
    with _written(request.folder), making(request.folder):
        _refuse_other(request)  # another command may have begun since
        _mark(request, complete=False)
        for label in range(request.classes):
            folder = request.folder / f"class{label:04d}"
            folder.mkdir(exist_ok=True)
            for index in range(request.images):
                path = folder / f"image{index:05d}.jpg"
                if not path.exists() or not path.stat().st_size:  # empty where the power failed
                    partial = path.with_name(f"{path.name}.partial")
                    with _removed(partial):
                        _cut(originals, request, label, index).save(partial, "JPEG", quality=QUALITY)
                        partial.replace(path)
                yield path
        os.sync()  # at once for all: thousands of files
        _mark(request, complete=True)


def digits(path: Path) -> int:
    """Write scikit-learn's digits, scaled from 8x8 to 28x28, as an .npz file; return their number."""
    data = _sklearn().load_digits()
    small = np.rint(data.images * (255 / 16)).astype(np.uint8)
    images = np.stack([np.asarray(Image.fromarray(x).resize((28, 28), Image.Resampling.BICUBIC)) for x in small])
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")  # each of two commands writes a whole file
    with _written(path), _removed(partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            np.savez_compressed(stream, images=images, labels=data.target.astype(np.uint8))
            os.fsync(stream.fileno())
        partial.replace(path)
    return len(images)


def python_topics(path: Path) -> int:
    """Write the topics of this Python's pydoc, sorted by name, as UTF-8; return the number of bytes.

    The text differs between patch releases.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise Unavailable(
            f"{sys.executable} has no module pydoc_data.topics, whose text this is; run stagebench by a complete "
            "Python (Debian's libpython3-stdlib has it), or name a text of your own: data = 'PATH'"
        ) from error
    text = "\n".join(topics[name] for name in sorted(topics)).encode()
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return len(text)


def _cut(originals: list[Image.Image], request: Photographs, label: int, index: int) -> Image.Image:
    """Cut a random crop, scaled and perhaps flipped; a class is a region of one photograph, which can be learnt."""
    photograph = originals[label % len(originals)]
    place = np.random.default_rng([request.seed, label])
    stream = np.random.default_rng([request.seed, label, index + 1])
    centre = np.clip(place.random(2) + 0.15 * (stream.random(2) - 0.5), 0.0, 1.0)
    fraction = 0.6 + 0.4 * stream.random()
    aspect = request.width / request.height
    width = fraction * min(photograph.width, photograph.height * aspect)
    left = centre[0] * (photograph.width - width)
    top = centre[1] * (photograph.height - width / aspect)
    box = (left, top, left + width, top + width / aspect)
    cut = photograph.resize((request.width, request.height), Image.Resampling.LANCZOS, box=box)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if stream.random() < 0.5 else cut


def _mark(request: Photographs, complete: bool) -> None:
    store(Marker("stagebench data make imagenet-like", request.recipe, complete), str(marker_file(request.folder)))


def _refuse_other(request: Photographs) -> None:
    if not request.folder.exists():
        return
    if not request.folder.is_dir():
        raise RequestError(f"{request.folder} is a file; name a folder with -o")
    try:
        recipe = marker_of(request.folder).recipe
    except FileNotFoundError:
        if any(path.name != LOCK for path in request.folder.iterdir()):
            raise RequestError(f"{request.folder} holds other files; name a new folder with -o") from None
        return
    except (OSError, ValueError) as error:
        raise RequestError(f"{error}; name another folder with -o") from error
    if recipe != request.recipe:
        asked = request.recipe._asdict()
        differ = ", ".join(f"{key} {value!r}" for key, value in recipe._asdict().items() if value != asked[key])
        raise RequestError(
            f"{request.folder} was made with other settings ({differ}); give the same ones, "
            "or name another folder with -o"
        )


@contextmanager
def _written(place: Path) -> Iterator[None]:
    """Turn an OSError into one message with the remedy."""
    try:
        yield
    except OSError as error:
        room = "free some space, or name" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name"
        raise StoreError(
            f"cannot write {error.filename or place}: {error.strerror or error}; {room} another place with -o, "
            "then run the same command again: it continues"
        ) from error


@contextmanager
def _removed(partial: Path) -> Iterator[None]:
    try:
        yield
    finally:
        partial.unlink(missing_ok=True)


def _sklearn() -> ModuleType:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise Unavailable(
            "making data sets needs scikit-learn, which ships the photographs and digits; "
            f"install it: {installing('stagebench[data]')}"
        ) from error
    return datasets  # type: ignore[no-any-return]
