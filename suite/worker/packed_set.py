"""A packed set: a data set written for a framework's own reader, once, before anything is measured.

SET/
records.json     a description of the set, written last: without it the set is not complete
part-00000/      files of the format, written by the adapter's trainer; and part.json
joined/          the parts made one, for a reader that takes one file

A part is written under another name and renamed when it is complete; an interrupted packing resumes with the next one.
"""

import os
import shutil
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from stagebench.suite.worker.job import Pack
from stagebench.suite.worker.photographs import common, naming, shrunk
from stagebench.suite.worker.ranks import Outbox
from stagebench.suite.worker.sources import Source, refuse_classes
from stagebench.suite.worker.trainer import Trainer
from stagebench.suite.worker.typed_json import from_json, load, store
from stagebench.workloads.catalogue import PHOTOGRAPHS, Preprocessing
from stagebench.workloads.graph import Shape

MARKER, PART, JOINED = "records.json", "part.json", "joined"
FORMAT = 3
MANY_SKIPPED = 1 << 28  # bytes of a part's own file, at most: it holds the reason for each image that was skipped
OWN = (PART, "lock.mdb")  # files that are no samples: stagebench's, and the lock that a reader of LMDB writes


class Record(NamedTuple):
    """A sample on its way into a record file."""

    number: int  # in the set it comes from
    label: int
    name: str  # its file's name, or "" if it has none
    encoded: Optional[bytes]  # an image file's bytes, which all decoders read alike; None for a sample of an array
    image: np.ndarray  # as a network sees it: float32 (channels, height, width), normalised, the centre crop
    path: str = ""  # the file whose whole content is `encoded`; "" if there is none


class Part(NamedTuple):
    """The content of `part.json`."""

    samples: int
    skipped: List[str]  # why each of the missing samples could not be read


class Skipped(NamedTuple):
    """The samples of a set that were skipped."""

    samples: int
    which: List[str]  # the first ones, in words


class Marker(NamedTuple):
    """The content of `records.json`: the recipe (stagebench.suite.worker.job.Recipe) and the result."""

    source: str
    kind: str
    listing: str
    shape: List[int]
    resize: int
    adapter: str
    format: int
    form: str  # the record format
    classes: int
    samples: int
    parts: List[str]
    files: Dict[str, int]  # bytes of each file of the parts and of their joined form, by its path in the set
    skipped: Skipped


def read_marker(folder: str) -> Marker:
    """Return the description of a folder's set; OSError if no set is complete, ValueError for another release's set."""
    path = f"{folder}/{MARKER}"
    content = load(Any, path)
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, int) and found != FORMAT:
        raise ValueError(f"{folder} has format {found}, this release reads {FORMAT}")
    marker: Marker = from_json(Marker, content, path)
    if marker.samples < 1 or marker.classes < 1:
        raise ValueError(f"{path} has {marker.samples} samples of {marker.classes} classes")
    for name in [*marker.parts, *marker.files]:
        if os.path.isabs(name) or ".." in name.split(os.sep):
            raise ValueError(f"{path} names {name}, which lies outside of the set")
    return marker


def files_of(folder: str, parts: List[str]) -> Dict[str, int]:
    """Return the bytes of every file that holds samples, by its path in the set."""
    found = {}
    for name in [*parts, JOINED]:
        inside = f"{folder}/{name}"
        for each in sorted(os.listdir(inside)) if os.path.isdir(inside) else ():
            if each not in OWN:
                found[f"{name}/{each}"] = os.path.getsize(f"{inside}/{each}")
    return found


def part_of(folder: str) -> Part:
    """Return a part's description of itself."""
    part: Part = load(Part, f"{folder}/{PART}", MANY_SKIPPED)
    return part


class RecordSource(Source):
    """A packed set. Samples come in the reader's own order; `sample` raises."""

    def __init__(self, path: str, how: Preprocessing = PHOTOGRAPHS) -> None:
        """Open a set; ValueError if there is no complete one, or one of another release."""
        again = "remove it and pack it again (stagebench data convert)"
        try:
            marker = read_marker(path)
        except OSError as error:
            raise ValueError(f"{path} holds no complete set of records ({error}); pack it (stagebench data convert)")
        except ValueError as error:
            raise ValueError(f"{error}; {again}")
        self.how = how
        self.path = path
        self.form = marker.form
        self.kind = marker.kind
        self.classes = marker.classes
        self.shape = tuple(marker.shape)
        self._samples = marker.samples
        self.parts = [f"{path}/{name}" for name in marker.parts]
        lost = [part for part in self.parts if not os.path.isdir(part)]
        if lost:
            raise ValueError(f"{path} lacks {', '.join(map(os.path.basename, lost))}; {again}")
        there = files_of(path, marker.parts)
        for name, size in sorted(marker.files.items()):
            if there.get(name) != size:
                holds = f"{there[name]} bytes" if name in there else "nothing"
                raise ValueError(f"{path}/{name} holds {holds}, and {size} bytes were packed; {again}")
        self.joined = f"{path}/{JOINED}"
        self.input_shape = self.shape  # a network's; whole images have none before `check`
        self.name = f"{marker.source} as {self.form} ({self._samples} samples)"
        self.records = self

    def __len__(self) -> int:
        return self._samples

    def paths(self) -> List[str]:
        """Return every file of the format; of the joined form if there is one."""
        folders = [self.joined] if os.path.isdir(self.joined) else self.parts
        found = [f"{folder}/{name}" for folder in folders for name in sorted(os.listdir(folder))]
        return [path for path in found if os.path.basename(path) not in OWN]

    def sample(self, index: int) -> Tuple[np.ndarray, int]:
        raise ValueError(f"{self.name} is read in its reader's own order, not sample by sample")

    def check(self, shape: Shape, classes: int) -> None:
        """Note the network's input shape; ValueError if the network does not take these samples."""
        self.input_shape = tuple(shape)
        if self.shape and self.shape != tuple(shape):
            raise ValueError(f"{self.path} holds samples of {self.shape!r}, the network wants {tuple(shape)!r}")
        refuse_classes(self.path, self.classes, classes)


def record(source: Source, index: int, resize: int = 0) -> Record:
    """Read one sample; OSError names an image that cannot be decoded.

    A reader that meets such an image in mid-run may lose other samples. A photograph is encoded anew if decoders read
    it differently, and with `resize`: its shorter side is then scaled to that many pixels.
    """
    image, label = source.sample(index)
    if source.files is None:
        return Record(index, label, "", None, image)
    path = source.files[index][0]
    with open(path, "rb") as stream:
        content = stream.read()
    with naming(path):
        encoded = common(shrunk(content, resize) if resize else content)
    name = os.path.join(os.path.basename(os.path.dirname(path)), os.path.basename(path))
    return Record(index, label, name, encoded, image, os.path.abspath(path) if encoded is content else "")


NAMED = 20  # skipped images that are named in the marker


def pack(trainer: Trainer, source: Source, task: Pack, outbox: Outbox) -> None:
    """Write the missing parts, join all parts, and write the marker."""
    # Neighbours in a folder are of one class: every reader wants them mixed.
    order = np.random.RandomState(0).permutation(len(source)).tolist()
    names = [f"part-{number:05d}" for number in range(task.parts)]
    done = 0
    for number, name in enumerate(names):
        indices = order[number :: task.parts]
        if not os.path.isdir(f"{task.folder}/{name}"):
            _write_part(trainer, source, indices, task, f"{task.folder}/{name}", outbox, done)
        done += len(indices)
    joined = f"{task.folder}/{JOINED}"
    shutil.rmtree(joined, ignore_errors=True)
    partial = _emptied(f"{joined}.partial")
    trainer.join_parts(task.form, [f"{task.folder}/{name}" for name in names], partial)
    if os.listdir(partial):
        os.rename(partial, joined)
    else:
        os.rmdir(partial)
    _write_marker(source, task, names)


def _write_part(
    trainer: Trainer, source: Source, indices: List[int], task: Pack, final: str, outbox: Outbox, done: int
) -> None:
    """Write one part of a set, of which `done` samples are in earlier parts."""
    partial = _emptied(f"{final}.partial")
    skipped: List[str] = []

    def kept() -> Iterator[Record]:
        for number, index in enumerate(indices, done + 1):
            outbox.progress("pack", "pack", number, len(source))
            try:
                found = record(source, index, task.resize)
            except OSError as error:
                if task.on_error != "skip":
                    raise
                skipped.append(str(error))
            else:
                yield found

    trainer.pack(task.form, kept(), partial)
    store(Part(len(indices) - len(skipped), skipped), f"{partial}/{PART}")
    os.rename(partial, final)


def _emptied(folder: str) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def _write_marker(source: Source, task: Pack, names: List[str]) -> None:
    parts = [part_of(f"{task.folder}/{name}") for name in names]
    samples = sum(part.samples for part in parts)
    skipped = [each for part in parts for each in part.skipped]
    if not samples:
        raise ValueError(f"none of the {len(source)} samples of {source.name} can be read")
    marker = Marker(
        *task.recipe,
        format=FORMAT,
        form=task.form,
        classes=source.classes,
        samples=samples,
        parts=names,
        files=files_of(task.folder, names),
        skipped=Skipped(len(skipped), skipped[:NAMED]),
    )
    store(marker, f"{task.folder}/{MARKER}")
