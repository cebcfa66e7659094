"""A few samples of a data set, spread over it and laid out as a set of their own."""

import os
from hashlib import sha256
from pathlib import Path

import numpy as np

from suite.data.sets import kind_of
from suite.errors import RequestError
from suite.worker.array_files import loaded
from suite.worker.image_folder import listed


def some(source: Path, samples: int, even: int, folder: Path) -> Path:
    """At most `samples` of the set, a multiple of `even`, below `folder`; returns their path.

    No sample is there twice: which one of them a reader delivered could not be told. RequestError when there are
    too few.
    """
    return (_images if kind_of(source) == "folder" else _arrays)(source, samples, even, folder)


def _spread(count: int, wanted: int) -> list[int]:
    return [int(index) for index in np.linspace(0, count - 1, min(count, wanted))]


def _even(source: Path, distinct: list[int], even: int) -> list[int]:
    count = len(distinct) // even * even
    if not count:
        raise RequestError(
            f"{source} holds {len(distinct)} different samples, and comparing readers takes {even} or more; "
            "name a larger set or leave --readers out"
        )
    return distinct[:count]


def _images(source: Path, samples: int, even: int, folder: Path) -> Path:
    files = listed(str(source)).files
    first: dict[bytes, int] = {}
    for index in _spread(len(files), samples):
        first.setdefault(sha256(Path(files[index][0]).read_bytes()).digest(), index)
    for index in _even(source, list(first.values()), even):
        path = Path(files[index][0])
        place = folder / "images" / path.parent.name / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(path.resolve(), place)
    return folder / "images"


def _arrays(source: Path, samples: int, even: int, folder: Path) -> Path:
    images, labels = loaded(str(source))
    first: dict[bytes, int] = {}
    for index in _spread(len(labels), samples):
        first.setdefault(images[index].tobytes(), index)
    chosen = _even(source, list(first.values()), even)
    if (labels[chosen] == labels[chosen[0]]).all():  # a set of one class would be refused
        others = np.flatnonzero(labels != labels[chosen[0]])
        chosen[-1] = next((int(other) for other in others if images[other].tobytes() not in first), chosen[-1])
    np.savez(folder / "some.npz", images=images[chosen], labels=labels[chosen])
    return folder / "some.npz"
