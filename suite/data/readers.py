"""Do all readers deliver the same pixels? Each one's samples, laid beside the plain source's.

A few images of a set are read once through every adapter's reader, from the files and from each of its
record formats. A reader may deliver them in any order: each sample is matched with the nearest
of the plain source's, and each of those must come exactly once.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from suite import bundle
from suite.adapter import Adapter, Format
from suite.case import Case, Input, Placement
from suite.data.records import Packing, pack
from suite.data.sets import kind_of
from suite.environments import Interpreter
from suite.errors import RequestError, StagebenchError
from suite.launch import Ready
from suite.plugins import launchers
from suite.worker.photographs import Photographs
from suite.worker.sources import ArraySource, FolderSource, Source, listed
from workloads.catalogue import Workload

BATCH, READERS = 4, 2
SECONDS = 300.0
# In levels of 0 to 255. Decoders round the inverse cosine transform and the scaling each in its own way.
MEAN, MOST = 0.5, 4.0
SCALED_MEAN = 6.0  # where a reader scales by another filter, for the reason that its format gives


@dataclass(frozen=True)
class Delivered:
    """What became of one reader."""

    adapter: str
    format: str
    reader: str  # in the adapter's words
    samples: int
    wrong_labels: int
    missing: int  # of the plain source's samples, those that did not come, or came twice
    mean: float  # difference in levels (photographs), or in deviations (digits)
    most: float
    bound: str
    problem: str  # "" when it delivers what the others do

    @property
    def row(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)


class Check:
    """A few samples of one set, and what the plain source makes of them."""

    def __init__(self, source: Path, workload: Workload, samples: int, folder: Path) -> None:
        """Lay `samples` of the set out in `folder`; RequestError when it has fewer than a batch."""
        self.folder, self.workload = folder, workload
        self.kind, shape = kind_of(source), workload.graph().input_shape
        if self.kind == "folder":
            self.data = _some_images(source, samples, folder / "images")
            plain: Source = FolderSource(str(self.data), shape, workload.preprocessing)
        else:
            self.data = _some_arrays(source, samples, folder / "some.npz")
            plain = ArraySource(str(self.data), shape)
        found = [plain.sample(index) for index in range(len(plain))]
        self.images, self.labels = np.stack([image for image, _ in found]), np.array([label for _, label in found])

    def readers(self, adapter: Adapter, interpreter: Interpreter) -> Iterator[Delivered]:
        """Every reader of an adapter."""
        yield self.one(adapter, interpreter, None)
        for form in adapter.capabilities.formats:
            if self.kind in form.kinds:
                yield self.one(adapter, interpreter, form)

    def one(self, adapter: Adapter, interpreter: Interpreter, form: Format | None) -> Delivered:
        """One reader: from the files (None), or packed for it."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            try:
                data = {"kind": self.kind, "path": str(self.data)}
                if form is not None:
                    data = {"kind": "records", "path": str(self._packed(adapter, interpreter, form, Path(scratch)))}
                images, labels, reader = self._read(adapter, interpreter, data, Path(scratch))
            except StagebenchError as error:
                name = form.name if form else "files"
                return Delivered(adapter.name, name, "", 0, 0, len(self.labels), 0.0, 0.0, "", str(error))
        return self._compared(adapter, form, images, labels, reader)

    def _packed(self, adapter: Adapter, interpreter: Interpreter, form: Format, scratch: Path) -> Path:
        folder = scratch / "records"
        packing = Packing(str(self.data), self.data, adapter, form, self.workload, folder=folder)
        (scratch / "packing").mkdir()
        pack(packing, interpreter, len(self.labels), scratch / "packing", lambda done: None)
        return folder

    def _read(
        self, adapter: Adapter, interpreter: Interpreter, data: dict[str, str], scratch: Path
    ) -> tuple[np.ndarray, np.ndarray, str]:
        able = adapter.capabilities
        alone = next((each for each in able.strategies if not each.distributed), able.strategies[0])
        case = Case(
            adapter.name,
            alone.name,
            self.workload.name,
            Placement(launcher=alone.launchers[0]),
            batch=BATCH,
            data=str(self.data),
            precision=able.precisions[0],
            tuning="tuned" if "tuned" in able.tunings else able.tunings[0],
            readers=READERS,
            input=Input(),
            knobs={name: knob.default for name, knob in able.knobs.items()},
            passes=(),
            time_limit=SECONDS,
            silence_limit=SECONDS,
        )
        written = bundle.write(adapter, scratch / "bundle")
        ready = Ready(case, adapter, self.workload, launchers()[alone.launchers[0]], interpreter, written)
        attempt = ready.attempt(scratch, "read", lambda rank, message: None, data=data, samples=len(self.labels))
        if attempt.outcome != "ok":
            raise StagebenchError(attempt.reason)
        notes = [message["notes"] for message in attempt.messages[0] if message["type"] == "notes"]
        with np.load(scratch / "read.npz") as content:
            return content["images"], content["labels"], str(notes[-1].get("reader", "threads"))

    def _compared(
        self, adapter: Adapter, form: Format | None, images: np.ndarray, labels: np.ndarray, reader: str
    ) -> Delivered:
        name = form.name if form else "files"
        if images.shape != self.images.shape:
            told = f"delivers images of {images.shape[1:]}, not of {self.images.shape[1:]}"
            count = len(labels)
            return Delivered(adapter.name, name, reader, count, 0, len(self.labels), 0.0, 0.0, "", told)
        nearest = np.array([_nearest(image, self.images) for image in images])
        wrong = int((labels != self.labels[nearest]).sum())
        absent = len(set(range(len(self.labels))) - set(nearest.tolist()))
        off = np.abs(self._levels(images) - self._levels(self.images[nearest]))
        mean, most = float(off.mean()), float(off.max())
        looser = form is not None and form.scaling and self._scales()
        bound = f"mean {SCALED_MEAN:g}: {form.scaling}" if form and looser else f"mean {MEAN:g}, most {MOST:g}"
        problem = ""
        if wrong:
            problem = f"{wrong} of {len(labels)} labels are wrong"
        elif mean > (SCALED_MEAN if looser else MEAN) or (most > MOST and not looser):
            problem = f"pixels differ by {mean:.2f} on the average, {most:.1f} at most"
        elif absent:
            problem = f"{absent} of {len(self.labels)} samples did not come in the first epoch"
        return Delivered(adapter.name, name, reader, len(labels), wrong, absent, mean, most, bound, problem)

    def _levels(self, images: np.ndarray) -> np.ndarray:
        if self.kind != "folder":
            return images
        return Photographs(self.workload.preprocessing, images.shape[-1]).levels(images)

    def _scales(self) -> bool:
        from suite.data.check import header, images

        return any(min(header(path)) != self.workload.preprocessing.resize for path in images(self.data))


def _nearest(image: np.ndarray, among: np.ndarray) -> int:
    return int(((among - image) ** 2).reshape(len(among), -1).sum(axis=1).argmin())


def _some_images(source: Path, samples: int, folder: Path) -> Path:
    """Links to images spread evenly over the set, in its layout."""
    files, _ = listed(str(source))
    count = min(samples, len(files)) // BATCH * BATCH
    if not count:
        raise RequestError(f"{source} holds {len(files)} images; comparing readers takes {BATCH} or more")
    for index in np.linspace(0, len(files) - 1, count).astype(int):
        path = Path(files[index][0])
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        os.symlink(path.resolve(), folder / path.parent.name / path.name)
    return folder


def _some_arrays(source: Path, samples: int, path: Path) -> Path:
    from suite.worker.sources import loaded

    images, labels = loaded(str(source))
    count = min(samples, len(labels)) // BATCH * BATCH
    if not count:
        raise RequestError(f"{source} holds {len(labels)} samples; comparing readers takes {BATCH} or more")
    np.savez(path, images=images[:count], labels=labels[:count])
    return path
