"""Data sets packed as records, each by the framework whose reader takes them."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stagebench.suite.contracts.adapter import Adapter, Format
from stagebench.suite.data.sets import count, kind_of, listing, locate, making, records_place
from stagebench.suite.errors import RequestError, StagebenchError
from stagebench.suite.files import disk, write_whole
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.interpreters import Interpreter
from stagebench.suite.processes.single import single
from stagebench.suite.worker.job import Pack, Recipe
from stagebench.suite.worker.messages import Message, Progress
from stagebench.suite.worker.packed_set import MARKER, Marker, read_marker
from stagebench.suite.worker.typed_json import load
from stagebench.workloads.catalogue import Workload

RECIPE = "recipe.json"  # in the folder from the start: the settings that its parts are made with
SAMPLES_OF_A_PART = 5000
ANOTHER_PLACE = "STAGEBENCH_DATA names another place"
SECONDS = 7 * 24 * 3600.0  # packing ImageNet takes hours
SILENCE = 3600.0  # joining its parts may take an hour without a message


@dataclass(frozen=True)
class Packing:
    """A set to be packed."""

    data: str  # a named set, or a full path
    source: Path
    adapter: Adapter
    format: Format
    workload: Workload  # defines the input, if samples are cut before they are packed
    resize: int = 0  # pixels of the shorter side; 0: images stay as they are, byte for byte
    on_error: str = "fail"  # or "skip": images that cannot be read are skipped
    folder: Path | None = None  # None: the set's place in the data home

    @property
    def place(self) -> Path:
        return self.folder or records_place(self.data, self.format, self.workload)

    @property
    def recipe(self) -> Recipe:
        """Everything that decides the content."""
        kind = kind_of(self.source)
        shape = () if kind == "folder" and self.format.whole else self.workload.graph().input_shape
        return Recipe(self.source.name, kind, listing(self.source), list(shape), self.resize, self.adapter.name)


def pack(
    packing: Packing, interpreter: Interpreter, scratch: Path, progress: Callable[[int], None] = lambda done: None
) -> Marker:
    """Pack the samples that are not packed yet; return the marker of the whole set.

    `progress` receives the number of samples done. RequestError if the folder was begun with other settings,
    StoreError if the disk refuses, StagebenchError if packing fails.
    """
    folder, recipe = packing.place, packing.recipe
    if (folder / MARKER).exists():
        _begin(folder, recipe)
        return packed(folder)
    with ExitStack() as stack:
        with disk(f"cannot write {folder}", ANOTHER_PLACE):
            stack.enter_context(making(folder))
        _begin(folder, recipe)
        if not (folder / MARKER).exists():
            _pack(packing, interpreter, scratch, progress)
    return packed(folder)


def _pack(packing: Packing, interpreter: Interpreter, scratch: Path, progress: Callable[[int], None]) -> None:
    """Pack the missing parts; StagebenchError if that fails."""
    launch = single(packing.adapter, packing.workload, interpreter, scratch, Limits(SECONDS, SILENCE))
    data = locate(packing.data, packing.workload)
    assert data is not None, "synthetic data are never packed"
    task = Pack(
        graph=packing.workload.graph(),
        data=data,
        form=packing.format.name,
        folder=str(packing.place),
        parts=-(-count(packing.source) // SAMPLES_OF_A_PART),
        on_error=packing.on_error,
        resize=packing.resize,
        recipe=packing.recipe,
    )

    def on_message(rank: int, message: Message) -> None:
        if isinstance(message, Progress):
            progress(message.step)

    attempt = launch.run(scratch, task, on_message)
    if attempt.outcome != "ok":
        raise StagebenchError(
            f"{packing.source} could not be packed as {packing.format.name}: {attempt.reason}; "
            "the same command continues (--on-error skip leaves unreadable samples out)"
        )


def packed(folder: Path) -> Marker:
    """Return the marker of a whole set; RequestError if it is damaged or another release's."""
    try:
        return read_marker(str(folder))
    except (OSError, ValueError) as error:
        raise RequestError(f"{error}; remove {folder}, then run the same command again") from error


def _begin(folder: Path, recipe: Recipe) -> None:
    """Write the recipe; RequestError if the folder holds parts of another one."""
    path = folder / RECIPE
    if path.exists():
        try:
            before = load(Recipe, str(path))
        except (OSError, ValueError) as error:
            raise RequestError(f"{error}; remove {folder}, then run the same command again") from error
        earlier = before._asdict()
        differ = [f"{key} {earlier[key]!r}" for key, value in recipe._asdict().items() if earlier[key] != value]
        if not differ:
            return
        why = f"was packed with other settings ({', '.join(differ)})"
        if differ == [f"listing {before.listing!r}"]:
            why = f"was packed before {recipe.source} changed"
        raise RequestError(f"{folder} {why}; remove it, then run the same command again")
    with disk(f"cannot write {folder}", ANOTHER_PLACE):
        write_whole(path, f"{json.dumps(recipe._asdict(), indent=1)}\n")
