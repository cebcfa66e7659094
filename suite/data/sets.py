"""The data sets that stagebench can make, where they stand, and what a job says of them."""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from suite.cache import cache_root
from suite.contracts.adapter import Format
from suite.errors import Unavailable
from suite.files import expanded, stands
from suite.worker import idx
from suite.worker.job import DataSet
from suite.worker.typed_json import load
from workloads.catalogue import Workload
from workloads.preprocessing import PHOTOGRAPHS


class Recipe(NamedTuple):
    """All that decides the images of a folder that stagebench makes."""

    classes: int
    images: int  # of each class
    width: int
    height: int
    seed: int
    quality: int  # of JPEG


class Marker(NamedTuple):
    """dataset.json in an image folder that stagebench made."""

    made_by: str  # the command
    recipe: Recipe
    complete: bool


@dataclass(frozen=True)
class KnownSet:
    """A data set known by name."""

    name: str
    kind: str  # "folder" or "arrays", as in a job's data entry
    entry: str  # below the data home
    help: str

    theirs: str = ""  # what a person must bring, where stagebench cannot make it

    @property
    def remedy(self) -> str:
        """The command that makes it, or where what a person has belongs."""
        return f"put {self.theirs} into {home() / self.entry}" if self.theirs else f"stagebench data make {self.name}"


SETS = {
    known.name: known
    for known in (
        KnownSet("imagenet-like", "folder", "imagenet-like", "JPEG photographs of 500x375 in class folders"),
        KnownSet("digits", "arrays", "digits.npz", "1,797 handwritten digits of 28x28"),
        KnownSet("mnist", "arrays", "mnist", "MNIST, its original files", "MNIST's idx files (plain or .gz)"),
    )
}


def home() -> Path:
    """Where named sets stand: STAGEBENCH_DATA, else `data` in the cache (`suite.cache`)."""
    explicit = os.environ.get("STAGEBENCH_DATA")
    return expanded(explicit).absolute() if explicit else cache_root() / "data"


def made(name: str) -> Path | None:
    """The place of a named set; None when it is not there, or was never finished."""
    path = home() / SETS[name].entry
    if path.is_dir() and SETS[name].kind == "arrays":
        return path if idx.pair(str(path)) else None
    if SETS[name].kind == "folder":
        with contextlib.suppress(OSError, ValueError):  # `stagebench data make` says what is wrong with it
            return path if marker_of(path).complete else None
        return None
    return path if path.is_file() else None


def marker_file(folder: Path) -> Path:
    return folder / "dataset.json"


def marker_of(folder: Path) -> Marker:
    """How an image folder was made; OSError for a folder without a marker, ValueError names what is wrong with it."""
    marker: Marker = load(Marker, str(marker_file(folder)))
    return marker


def kind_of(path: Path) -> str:
    """What a path holds: "arrays" for an .npz file or MNIST's idx files, "folder" for anything else."""
    return "arrays" if path.suffix == ".npz" or (path.is_dir() and idx.pair(str(path))) else "folder"


def real(dataset: str) -> str:
    """The named set that "real" means for a workload's `dataset`: a person's own MNIST goes before digits."""
    return "mnist" if dataset == "digits" and made("mnist") else dataset


def records_place(data: str, form: Format, workload: Workload) -> Path:
    """The folder of a set's records: below the data home, so that a set may stand where nobody may write.

    Images that were cut before they were packed fit one input shape and one way of preprocessing: each has a folder
    of its own.
    """
    name = form.name if form.whole else f"{form.name}-{'x'.join(map(str, workload.graph().input_shape))}"
    if not form.whole and workload.preprocessing != PHOTOGRAPHS:
        name += f"-{hashlib.sha256(repr(workload.preprocessing).encode()).hexdigest()[:8]}"
    if data in SETS:
        return home() / "records" / data / name
    path = str(Path(data).absolute())
    return home() / "records" / f"{Path(path).name}-{hashlib.sha256(path.encode()).hexdigest()[:8]}" / name


def locate(name: str, workload: Workload, form: Format | None = None) -> DataSet | None:
    """The data set of a job; None for synthetic data.

    `name` is "synthetic", "real" (the workload's own set), a named set or a path; `form` a record format, or None for
    the files as they stand. Unavailable, with the command that makes it, when the set is not there.
    """
    if name == "synthetic":
        return None
    name = real(workload.dataset) if name == "real" else name
    if form is not None:
        return DataSet("records", str(records_place(name, form, workload)), workload.preprocessing)
    if name in SETS:
        path = made(name)
        if path is None:
            raise Unavailable(f"the data set {name!r} is not in {home()}; get it: {SETS[name].remedy}")
        return DataSet(SETS[name].kind, str(path), workload.preprocessing)
    path = expanded(name).absolute()
    if not stands(path):
        raise Unavailable(f"the data set {path} is not there; name an image folder, an .npz file or {', '.join(SETS)}")
    return DataSet(kind_of(path), str(path), workload.preprocessing)
