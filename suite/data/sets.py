"""Data sets: the known ones, their folders, their packed records, and the entry of a job."""

import contextlib
import errno
import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stagebench.suite.contracts.adapter import Format
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.files import cache_root, expanded, locked, stands
from stagebench.suite.worker import array_files, text_files
from stagebench.suite.worker.job import DataSet
from stagebench.suite.worker.packed_set import read_marker
from stagebench.suite.worker.typed_json import load
from stagebench.workloads.catalogue import PHOTOGRAPHS, Workload


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
    kind: str  # "folder", "arrays" or "text", as in a job's data entry
    entry: str  # below the data home
    help: str

    theirs: str = ""  # the files that the user must bring, if stagebench cannot make the set

    @property
    def remedy(self) -> str:
        """The command that makes the set, or the folder that the user's files belong into."""
        return f"put {self.theirs} into {home() / self.entry}" if self.theirs else f"stagebench data make {self.name}"


SETS = {
    known.name: known
    for known in (
        KnownSet("imagenet-like", "folder", "imagenet-like", "JPEG photographs of 500x375 in class folders"),
        KnownSet("digits", "arrays", "digits.npz", "1,797 handwritten digits of 28x28"),
        KnownSet("python-topics", "text", "python-topics.txt", "the language reference in Python's pydoc"),
        KnownSet("mnist", "arrays", "mnist", "MNIST, its original files", "MNIST's idx files (plain or .gz)"),
    )
}


def home() -> Path:
    """Return the folder of named sets: STAGEBENCH_DATA, else `data` in the cache (`stagebench.suite.files`)."""
    explicit = os.environ.get("STAGEBENCH_DATA")
    return expanded(explicit).absolute() if explicit else cache_root() / "data"


def made(name: str) -> Path | None:
    """Return the path of a named set; None if it is missing or unfinished."""
    path = home() / SETS[name].entry
    if path.is_dir() and SETS[name].kind == "arrays":
        return path if array_files.idx_files(str(path)) else None
    if SETS[name].kind == "folder":
        with contextlib.suppress(OSError, ValueError):  # `stagebench data make` reports the error
            return path if marker_of(path).complete else None
        return None
    return path if path.is_file() else None


LOCK = ".lock"  # in the folder of a set that a command makes or packs
NO_LOCKS = (
    errno.ENOLCK,
    errno.ENOSYS,
    errno.ENOTSUP,
)  # a network file system, where two commands cannot be distinguished


@contextlib.contextmanager
def making(folder: Path) -> Iterator[None]:
    """Hold the folder of a set while it is made; RequestError if another process makes it, OSError from the disk."""

    def refuse(holder: str) -> None:
        raise RequestError(
            f"another stagebench (process {holder}) is making {folder}; wait for it, then run the same command again"
        )

    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / LOCK, refuse))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        yield


def marker_file(folder: Path) -> Path:
    return folder / "dataset.json"


def marker_of(folder: Path) -> Marker:
    """Return how an image folder was made; OSError without a marker, ValueError for a broken one."""
    marker: Marker = load(Marker, str(marker_file(folder)))
    return marker


def kind_of(path: Path) -> str:
    """Return the kind of a data set: "arrays" (.npz, or MNIST's files), "text" (any other file) or "folder"."""
    if path.suffix == ".npz" or (path.is_dir() and array_files.idx_files(str(path))):
        return "arrays"
    return "text" if path.is_file() else "folder"


def without_digest(data: str, base: Path) -> tuple[str, str]:
    """Split a text's name or path, as a case has it, from its digest; "" without one."""
    match = re.fullmatch(r"(.+)@([0-9a-f]{16})", data)
    return (match[1], match[2]) if match and not stands(base / expanded(data)) else (data, "")


def real(dataset: str) -> str:
    """Return the named set that "real" means for a workload's `dataset`: the user's MNIST if present, before digits."""
    return "mnist" if dataset == "digits" and made("mnist") else dataset


def records_place(data: str, form: Format, workload: Workload) -> Path:
    """Return the folder of a set's records, below the data home, since the set's own folder may be read-only.

    Images that are cut before they are packed fit one input shape and one preprocessing: each pair has its own folder.
    """
    name = form.name if form.whole else f"{form.name}-{'x'.join(map(str, workload.graph().input_shape))}"
    if not form.whole and workload.preprocessing != PHOTOGRAPHS:
        name += f"-{hashlib.sha256(repr(workload.preprocessing).encode()).hexdigest()[:8]}"
    if data in SETS:
        return home() / "records" / data / name
    path = str(Path(data).absolute())
    return home() / "records" / f"{Path(path).name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}" / name


def missing_records(data: str, source: Path, form: Format, workload: Workload) -> str | None:
    """Return why a set's records cannot be read, with the remedy; None if they can."""
    folder = records_place(data, form, workload)
    for_whom = "" if form.whole else f" --workload {workload.name}"
    remedy = f"pack it: stagebench data convert {shlex.quote(data)} --to {form.name}{for_whom}"
    try:
        marker = read_marker(str(folder))
    except OSError:
        return f"{source.name} is not packed as {form.name} in {folder}; {remedy}"
    except ValueError as error:
        return f"{folder} is damaged, or of another release of stagebench ({error}); remove it, then {remedy}"
    if marker.listing != listing(source):
        return f"{source} has changed since it was packed as {form.name}; remove {folder}, then {remedy}"
    return None


def listing(source: Path) -> str:
    """Return 12 digits that change if samples are added, removed or change their class (array files: size or time)."""
    from stagebench.suite.worker.image_folder import listed

    if kind_of(source) == "folder":
        text = "\n".join(f"{Path(path).relative_to(source)} {label}" for path, label in listed(str(source)).files)
    else:
        files = [Path(file) for file in array_files.idx_files(str(source)) or ()] if source.is_dir() else [source]
        text = "\n".join(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def count(source: Path) -> int:
    """Return the number of samples, or of a text's tokens; ValueError or OSError for a broken file."""
    from stagebench.suite.worker.array_files import loaded
    from stagebench.suite.worker.image_folder import listed

    kind = kind_of(source)
    if kind == "text":
        return len(text_files.loaded(str(source)))
    return len(listed(str(source)).files) if kind == "folder" else len(loaded(str(source))[1])


def locate(name: str, workload: Workload, form: Format | None = None) -> DataSet | None:
    """Return the data set of a job; None for synthetic data.

    `name` is "synthetic", "real" (the workload's own set), a named set or a path, of a text with its digest; `form` is
    a record format, or None for the files. Unavailable, with the command that makes the set, if it is missing.
    """
    if name == "synthetic":
        return None
    name = real(workload.dataset) if name == "real" else name
    if form is not None:
        return DataSet("records", str(records_place(name, form, workload)), workload.preprocessing)
    name, digest = without_digest(name, Path())
    path = made(name) if name in SETS else expanded(name).absolute()
    if path is None:
        raise Unavailable(f"the data set {name!r} is not in {home()}; get it: {SETS[name].remedy}")
    if not stands(path):
        raise Unavailable(
            f"the data set {path} is not there; name an image folder, an .npz file, a text or {', '.join(SETS)}"
        )
    return DataSet(kind_of(path), str(path), workload.preprocessing, digest)
