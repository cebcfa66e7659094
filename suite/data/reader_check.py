"""The check that all readers deliver the samples that the plain source makes of the same files.

A few samples of a set are read once through every reader of an adapter: of the files, and of each record format. A
reader may deliver in any order: each sample is matched with the nearest of the plain source's, and each of those must
come exactly once.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from stagebench.suite.contracts import knobs
from stagebench.suite.contracts.adapter import Adapter, Format
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.data.decode import header, images
from stagebench.suite.data.pack import Packing, pack
from stagebench.suite.data.sets import kind_of
from stagebench.suite.errors import RequestError, StagebenchError, Unavailable
from stagebench.suite.plugin_errors import ask
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.interpreters import Interpreter
from stagebench.suite.processes.single import plain, single
from stagebench.suite.text import command_line, known
from stagebench.suite.worker import text_files
from stagebench.suite.worker.array_files import loaded
from stagebench.suite.worker.image_folder import listed
from stagebench.suite.worker.job import DataSet, Read
from stagebench.suite.worker.messages import Notes, of_type
from stagebench.suite.worker.photographs import Photographs
from stagebench.suite.worker.sources import open_source
from stagebench.workloads.catalogue import Workload

BATCH, READERS = 4, 2
EVEN = BATCH * READERS  # samples of an epoch are a multiple: no reader fills its last batch from the next epoch
SECONDS = 300.0


@dataclass(frozen=True)
class Bounds:
    """The largest allowed distance of pixels: the mean, and that of any pixel."""

    mean: float
    most: float
    reason: str = ""  # for looser bounds than usual

    def __str__(self) -> str:
        most = f", most {self.most:g}" if np.isfinite(self.most) else ""
        return f"mean {self.mean:g}{most}" + (f": {self.reason}" if self.reason else "")


# In levels of 0 to 255. Decoders round the inverse cosine transform and the scaling each in its own way.
DECODED = Bounds(0.5, 4.0)
# In standard deviations: arrays are neither decoded nor scaled, but a text format may write few digits.
EXACT = Bounds(1e-3, 1e-3)
# Levels on the average, where files are decoded by other rules for the reason that the adapter gives: libjpeg-turbo
# without its interpolation of colours is 0.7 to 1.6 off, and more than 20 at edges; nvJPEG on an H200 0.75 and 24.
REDECODED = 2.0
SCALED = 6.0  # levels on the average, where a reader scales by another filter for the reason that its format gives


@dataclass(frozen=True)
class Samples:
    """Images as levels or deviations, float32 (samples, channels, height, width), or tokens, int64; labels, int64."""

    images: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; `problem` is "" if all samples are right."""

    mean: float
    most: float
    wrong_labels: int
    missing: int  # of the plain source's samples
    problem: str


def compare(delivered: Samples, true: Samples, bounds: Bounds, order: list[int] | None = None) -> Comparison:
    """Match the samples and compare pixels, labels and completeness; with `order`, the order too."""
    if delivered.images.shape[1:] != true.images.shape[1:]:
        problem = f"delivers images of {delivered.images.shape[1:]}, not of {true.images.shape[1:]}"
        return Comparison(0.0, 0.0, 0, len(true.labels), problem)
    if delivered.images.dtype.kind != true.images.dtype.kind:
        problem = f"delivers {delivered.images.dtype}, not {true.images.dtype}"
        return Comparison(0.0, 0.0, 0, len(true.labels), problem)
    match = nearest(delivered.images, true.images)
    mean, most = off(delivered.images, true.images[match])
    wrong = int((delivered.labels != true.labels[match]).sum())
    absent = len(set(range(len(true.labels))) - set(match.tolist()))
    problem = ""
    if not (mean <= bounds.mean and most <= bounds.most):
        turned = delivered.images[:, ::-1]  # the commonest error
        by, _ = off(turned, true.images[nearest(turned, true.images)])
        cause = f", by {by:.3g} with the channels reversed: it delivers BGR" if by <= bounds.mean else ""
        problem = f"pixels differ by {mean:.3g} on the average, {most:.3g} at most{cause}"
    elif wrong:
        problem = f"{wrong} of {true.labels[match].size} labels are wrong"
    elif absent:
        problem = f"{absent} of {len(true.labels)} samples did not come in the first epoch"
    elif order is not None and match.tolist() != order[: len(match)]:
        problem = "samples come in another order than asked for"
    return Comparison(mean, most, wrong, absent, problem)


def nearest(images: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return for each image the index of the nearest one among the others."""
    flat, others = images.reshape(len(images), -1), among.reshape(len(among), -1)
    centre = others.mean(axis=0)
    flat, others = flat - centre, others - centre
    # |a - b|^2 without |a|^2, which is constant for each a
    indices: np.ndarray = ((others**2).sum(axis=1) - 2.0 * flat @ others.T).argmin(axis=1)
    return indices


def off(images: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Return the mean and the largest distance of a pixel."""
    distance = np.abs(images - true)
    return float(distance.mean()), float(distance.max())


@dataclass(frozen=True)
class Delivered:
    """The result of one reader."""

    adapter: str
    format: str
    reader: str = ""  # in the adapter's words
    samples: int = 0
    wrong_labels: int = 0
    missing: int = 0  # of the plain source's samples, those that did not come
    mean: float = 0.0  # difference in levels of 0 to 255 (photographs), or in standard deviations (arrays)
    most: float = 0.0
    bound: str = ""
    problem: str = ""  # "" if it delivers the right samples
    unavailable: str = ""  # what this machine lacks for the reader: nothing was read

    @property
    def row(self) -> dict[str, object]:
        return asdict(self)


class Check:
    """A few samples of one set, as the plain source reads them."""

    def __init__(
        self,
        source: Path,
        workload: Workload,
        samples: int,
        folder: Path,
        device: str = "",
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        """Lay `samples` of the set out in `folder`; RequestError if it has too few, or one cannot be read.

        Readers read for `device` ("": each adapter's first) with `knobs`, the others at their defaults.
        """
        self.folder, self.workload, self.kind = folder, workload, kind_of(source)
        self._device, self._knobs = device, dict(knobs or {})
        graph = workload.graph()
        self.data = some(source, samples, EVEN, folder, graph.input_shape[0])
        self.files = DataSet(self.kind, str(self.data), workload.preprocessing)
        self.plain = open_source(self.files, graph.input_shape, graph.classes, graph.vocabulary)
        images, labels = zip(*(self._plain_sample(source, index) for index in range(len(self.plain))), strict=True)
        self.true = self._samples(np.stack(images), np.array(labels))

    def refusal(self, adapter: Adapter) -> str | None:
        """Return why an adapter has no readers on this device or with these knobs; None if it has."""
        able = adapter.capabilities
        if self._device and self._device not in able.devices:
            return f"{adapter.name} does not do device {self._device!r}; it does {', '.join(able.devices)}"
        unknown = sorted(set(self._knobs) - set(able.knobs))
        if unknown:
            return f"{adapter.name} has no knob {unknown[0]!r}; {known(unknown[0], sorted(able.knobs))}"
        asked = self._configuration(adapter)
        problem = knobs.refusal(adapter.name, able.knobs, asked.strategy, self._knobs)
        if problem:
            return problem
        case = {**asked.knobs, "device": asked.placement.device, "precision": asked.precision}
        return knobs.unmet(able.knobs, case) or ask(adapter, "unsupported", asked)

    def readers(self, adapter: Adapter, interpreter: Interpreter) -> Iterator[Delivered]:
        yield self.one(adapter, interpreter, None)
        for form in adapter.capabilities.formats:
            if self.kind in form.kinds:
                yield self.one(adapter, interpreter, form)

    def one(self, adapter: Adapter, interpreter: Interpreter, form: Format | None) -> Delivered:
        """Check one reader: of the files (None), or of records packed for it."""
        name, bounds = form.name if form else "files", self._bounds(adapter, form)
        nothing = Delivered(adapter.name, name, bound=str(bounds))
        missing = ask(adapter, "unreadable", form) if form else None
        if missing:
            return replace(nothing, unavailable=missing)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            try:
                data = self.files
                if form is not None:
                    folder, work = Path(scratch) / "records", Path(scratch) / "packing"
                    work.mkdir()
                    packing = Packing(str(self.data), self.data, adapter, form, self.workload, folder=folder)
                    pack(packing, interpreter, work)
                    data = data._replace(kind="records", path=str(folder))
                delivered, reader = self._read(adapter, interpreter, data, Path(scratch))
            except Unavailable as error:
                return replace(nothing, unavailable=str(error))
            except StagebenchError as error:
                return replace(nothing, missing=len(self.plain), problem=str(error))
        # Files, and records that can be read in any order, are compared sample after sample.
        order = list(self.plain.order(0, 1, 0, 1)) if form is None or form.ordered else None
        comparison = compare(delivered, self.true, bounds, order)
        return replace(nothing, reader=reader, samples=len(delivered.labels), **asdict(comparison))

    def _plain_sample(self, source: Path, index: int) -> tuple[np.ndarray, int]:
        try:
            return self.plain.sample(index)
        except OSError as error:
            # The link is removed soon: name the file that it leads to.
            problem, link = str(error), self.plain.files[index][0] if self.plain.files else ""
            problem = problem.replace(link, os.path.realpath(link)) if link else problem
            command = command_line("stagebench", "data", "check", source)
            raise RequestError(f"{problem}; `{command}` names all unreadable files") from error

    def _read(self, adapter: Adapter, interpreter: Interpreter, data: DataSet, scratch: Path) -> tuple[Samples, str]:
        limits, values = Limits(SECONDS, SECONDS), self._values(adapter)
        launch = single(adapter, self.workload, interpreter, scratch, limits, **values)
        task = Read(self.workload.graph(), data, launch.configuration.input, len(self.plain))
        attempt = launch.run(scratch, task)
        if attempt.outcome == "unavailable":
            raise Unavailable(attempt.reason)
        if attempt.outcome != "ok":
            raise StagebenchError(f"{attempt.outcome}: {attempt.reason}")
        notes = of_type(Notes, attempt.messages[0])[-1].notes
        with np.load(scratch / "read.npz") as content:
            return self._samples(content["images"], content["labels"]), str(notes.get("reader", "threads"))

    def _values(self, adapter: Adapter) -> dict[str, Any]:
        """Return the settings of the readers' configuration that are not the adapter's first or default."""
        able, place = adapter.capabilities, plain(adapter, self.workload).placement
        return {
            "batch": BATCH,
            "readers": READERS,
            "tuning": "tuned" if "tuned" in able.tunings else able.tunings[0],
            "placement": replace(place, device=self._device or place.device),
            "knobs": self._knobs,
        }

    def _configuration(self, adapter: Adapter) -> Configuration:
        return plain(adapter, self.workload, **self._values(adapter))

    def _samples(self, images: np.ndarray, labels: np.ndarray) -> Samples:
        if self.kind == "folder" and images.ndim == 4 and images.shape[1] == 3:
            images = Photographs(self.workload.preprocessing, images.shape[-1]).levels(images)
        return Samples(images, labels)

    def _bounds(self, adapter: Adapter, form: Format | None) -> Bounds:
        if self.kind != "folder":
            return EXACT
        decoding = "" if form else ask(adapter, "decoding", self._configuration(adapter))
        if decoding:
            return Bounds(REDECODED, float("inf"), decoding)
        if form is not None and form.scaling and self._scales:
            return Bounds(SCALED, float("inf"), form.scaling)
        return DECODED

    @cached_property
    def _scales(self) -> bool:
        return any(min(header(path)) != self.workload.preprocessing.resize for path in images(self.data))


def some(source: Path, samples: int, even: int, folder: Path, positions: int = 0) -> Path:
    """Lay at most `samples` different samples out below `folder`, a multiple of `even`; return their path.

    Equal samples are skipped, since a reader's copies could not be told apart. RequestError if there are too few.
    `positions` are the tokens of a text's sample.
    """
    if kind_of(source) == "arrays":
        return _some_arrays(source, samples, even, folder)
    if kind_of(source) == "text":
        return _some_text(source, samples, even, folder, positions)
    files = listed(str(source)).files
    for index in _different(source, len(files), samples, even, lambda index: Path(files[index][0]).read_bytes()):
        path = Path(files[index][0])
        link = folder / "images" / path.parent.name / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(path.resolve(), link)
    return folder / "images"


def _some_arrays(source: Path, samples: int, even: int, folder: Path) -> Path:
    images, labels = loaded(str(source))
    chosen = _different(source, len(labels), samples, even, lambda index: images[index].tobytes())
    if (labels[chosen] == labels[chosen[0]]).all():  # a set of one class would be refused
        taken = {images[index].tobytes() for index in chosen}
        others = np.flatnonzero(labels != labels[chosen[0]])
        chosen[-1] = next((int(other) for other in others if images[other].tobytes() not in taken), chosen[-1])
    np.savez(folder / "some.npz", images=images[chosen], labels=labels[chosen])
    return folder / "some.npz"


def _some_text(source: Path, samples: int, even: int, folder: Path, positions: int) -> Path:
    tokens = text_files.loaded(str(source))
    count = text_files.windows(len(tokens), positions)
    windows = tokens[: count * positions].reshape(count, positions)
    chosen = windows[_different(source, count, samples, even, lambda index: windows[index].tobytes())]
    path = folder / f"some{source.suffix}"
    np.append(chosen, tokens[-1]).tofile(path)  # the last token is the label of the one before
    return path


def _different(source: Path, count: int, samples: int, even: int, content: Callable[[int], bytes]) -> list[int]:
    """Return the indices of samples with different content, spread over the set, a multiple of `even`."""
    first: dict[bytes, int] = {}
    for index in map(int, np.linspace(0, count - 1, min(count, samples))):
        first.setdefault(sha256(content(index)).digest(), index)
    if len(first) < even:
        raise RequestError(
            f"{source} holds {len(first)} different samples, and comparing readers takes {even} or more; "
            "name a larger set or leave --readers out"
        )
    return list(first.values())[: len(first) // even * even]
