"""Making data sets from what scikit-learn ships: real photographs and real digits, no network needed.

Every image has a random stream of its own, so a run that was interrupted continues and
ends with the same files.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

from suite.data.sets import Marker, Recipe, marker_file, marker_of
from suite.errors import RequestError, StoreError, Unavailable
from suite.worker.typed_json import store

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


def photographs(wanted: Photographs) -> Iterator[Path]:
    """Write the images that are not there yet, yielding each as it stands.

    RequestError when the folder holds something else; StoreError when the disk refuses.
    """
    _refuse_other(wanted)
    originals = [Image.fromarray(array) for array in _sklearn().load_sample_images().images]
    with _written(wanted.folder):
        wanted.folder.mkdir(parents=True, exist_ok=True)
        _mark(wanted, complete=False)
        for label in range(wanted.classes):
            folder = wanted.folder / f"class{label:04d}"
            folder.mkdir(exist_ok=True)
            for index in range(wanted.images):
                path = folder / f"image{index:05d}.jpg"
                if not path.exists() or not path.stat().st_size:  # empty where the power failed
                    _save(_cut(originals, wanted, label, index), path)
                yield path
        os.sync()  # at once for all: thousands of files
        _mark(wanted, complete=True)


def digits(path: Path) -> int:
    """Write scikit-learn's digits, scaled from 8x8 to 28x28, as an .npz file; returns how many there are."""
    data = _sklearn().load_digits()
    small = np.rint(data.images * (255 / 16)).astype(np.uint8)
    images = np.stack([np.asarray(Image.fromarray(x).resize((28, 28), Image.Resampling.BICUBIC)) for x in small])
    partial = path.with_name(path.name + ".partial")
    with _written(path), _removed(partial):
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            np.savez_compressed(stream, images=images, labels=data.target.astype(np.uint8))
            os.fsync(stream.fileno())
        partial.replace(path)
    return len(images)


def _cut(originals: list[Image.Image], wanted: Photographs, label: int, index: int) -> Image.Image:
    """A random crop, scaled, perhaps flipped; a class is a region of one photograph, so that it can be learnt."""
    photograph = originals[label % len(originals)]
    place = np.random.default_rng([wanted.seed, label])
    stream = np.random.default_rng([wanted.seed, label, index + 1])
    centre = np.clip(place.random(2) + 0.15 * (stream.random(2) - 0.5), 0.0, 1.0)
    fraction = 0.6 + 0.4 * stream.random()
    aspect = wanted.width / wanted.height
    width = fraction * min(photograph.width, photograph.height * aspect)
    left = centre[0] * (photograph.width - width)
    top = centre[1] * (photograph.height - width / aspect)
    box = (left, top, left + width, top + width / aspect)
    cut = photograph.resize((wanted.width, wanted.height), Image.Resampling.LANCZOS, box=box)
    return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if stream.random() < 0.5 else cut


def _save(image: Image.Image, path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    with _removed(partial):
        image.save(partial, "JPEG", quality=QUALITY)
        partial.replace(path)


def _mark(wanted: Photographs, complete: bool) -> None:
    store(Marker("stagebench data make imagenet-like", wanted.recipe, complete), str(marker_file(wanted.folder)))


def _refuse_other(wanted: Photographs) -> None:
    if not wanted.folder.exists():
        return
    if not wanted.folder.is_dir():
        raise RequestError(f"{wanted.folder} is a file; name a folder with -o")
    try:
        found = marker_of(wanted.folder).recipe
    except FileNotFoundError:
        if any(wanted.folder.iterdir()):
            raise RequestError(f"{wanted.folder} holds other files; name a new folder with -o") from None
        return
    except (OSError, ValueError) as error:
        raise RequestError(f"{error}; name another folder with -o") from error
    if found != wanted.recipe:
        asked = wanted.recipe._asdict()
        differ = ", ".join(f"{key} {value!r}" for key, value in found._asdict().items() if value != asked[key])
        raise RequestError(
            f"{wanted.folder} was made with other settings ({differ}); give the same ones, "
            "or name another folder with -o"
        )


@contextmanager
def _written(place: Path) -> Iterator[None]:
    """Turn what the disk says into one clear message."""
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
            "install it: pip install 'stagebench[data]'"
        ) from error
    return datasets  # type: ignore[no-any-return]
