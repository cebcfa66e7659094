"""Data sets packed as records for a framework's own reader: where they stand, whether they still fit, packing them."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import bundle
from suite.adapter import Adapter, Format
from suite.case import Case, Input, Placement
from suite.data.sets import kind_of, records_place
from suite.environments import Interpreter
from suite.errors import RequestError, StagebenchError, StoreError
from suite.launch import Ready
from suite.plugins import launchers
from suite.store import write_whole
from suite.worker.idx import pair
from suite.worker.records import MARKER
from suite.worker.sources import listed
from workloads.catalogue import Workload

RECIPE = "recipe.json"  # beside the parts from the start: what they are being made of
SAMPLES_OF_A_PART = 5000
SECONDS = 7 * 24 * 3600.0  # packing ImageNet takes hours
SILENCE = 600.0


@dataclass(frozen=True)
class Packing:
    """A set to be packed."""

    data: str  # a named set, or a full path
    source: Path
    adapter: Adapter
    format: Format
    workload: Workload  # whose input the samples become, where they are cut before they are packed
    resize: int = 0  # pixels of the shorter side; 0: images stay as they are, byte for byte
    on_error: str = "fail"
    folder: Path | None = None  # None: the set's place in the data home

    @property
    def place(self) -> Path:
        """Where the records stand."""
        return self.folder or records_place(self.data, self.format.name)

    @property
    def recipe(self) -> dict[str, Any]:
        """All that decides the content."""
        kind = kind_of(self.source)
        shape = () if kind == "folder" and self.format.whole else self.workload.graph().input_shape
        return {
            "source": self.source.name,
            "kind": kind,
            "listing": listing(self.source),
            "shape": list(shape),
            "resize": self.resize,
            "on_error": self.on_error,
            "adapter": self.adapter.name,
        }


def missing(data: str, source: Path, form: str) -> str | None:
    """Why a set's records cannot be read, with the remedy; None when they can."""
    folder = records_place(data, form)
    remedy = f"pack them: stagebench data convert {data} --to {form}"
    about = _json(folder / MARKER)
    if about is None:
        return f"{source.name} is not packed as {form} in {folder}; {remedy}"
    if about.get("listing") != listing(source):
        return f"{source} has changed since it was packed as {form}; remove {folder}, then {remedy}"
    return None


def listing(source: Path) -> str:
    """Twelve digits that change when samples come, go or are moved to another class; an array file's size and time."""
    if kind_of(source) == "folder":
        text = "\n".join(f"{Path(path).relative_to(source)} {label}" for path, label in listed(str(source))[0])
    else:
        files = [Path(file) for file in pair(str(source)) or ()] if source.is_dir() else [source]
        text = "\n".join(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pack(
    packing: Packing, interpreter: Interpreter, samples: int, scratch: Path, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Pack what is not packed yet, in the framework's own interpreter; returns the marker's content.

    `progress` is told how many samples are done. RequestError when other settings began it.
    """
    folder = packing.place
    _begin(folder, packing.recipe)
    about = _json(folder / MARKER)
    if about is not None:
        return about
    capabilities = packing.adapter.capabilities
    alone = next((each for each in capabilities.strategies if not each.distributed), capabilities.strategies[0])
    case = Case(
        packing.adapter.name,
        alone.name,
        packing.workload.name,
        Placement(launcher=alone.launchers[0]),
        data=packing.data,
        precision=capabilities.precisions[0],
        tuning=capabilities.tunings[0],
        knobs={name: knob.default for name, knob in capabilities.knobs.items()},
        input=Input(),
        passes=(),
        time_limit=SECONDS,
        silence_limit=SILENCE,
    )
    written = bundle.write(packing.adapter, scratch / "bundle")
    ready = Ready(case, packing.adapter, packing.workload, launchers()[alone.launchers[0]], interpreter, written)
    wanted = {
        "form": packing.format.name,
        "folder": str(folder),
        "parts": -(-samples // SAMPLES_OF_A_PART),
        "on_error": packing.on_error,
        "resize": packing.resize,
        "about": packing.recipe,
    }

    def heard(rank: int, message: dict[str, Any]) -> None:
        if message["type"] == "progress":
            progress(int(message["step"]))

    attempt = ready.attempt(scratch, "pack", heard, pack=wanted)
    about = _json(folder / MARKER)
    if attempt.outcome != "ok" or about is None:
        raise StagebenchError(
            f"{packing.source} could not be packed as {packing.format.name}: {attempt.reason}; "
            "the same command goes on where this one ended"
        )
    return about


def _begin(folder: Path, recipe: dict[str, Any]) -> None:
    """Write the recipe; RequestError when parts of another one lie there."""
    found = _json(folder / RECIPE)
    if found is not None and found != recipe:
        differ = ", ".join(f"{key} {found.get(key)!r}" for key in recipe if found.get(key) != recipe[key])
        raise RequestError(f"{folder} was packed with other settings ({differ}); remove it, or give the same ones")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / RECIPE, json.dumps(recipe, indent=1) + "\n")
    except OSError as error:
        raise StoreError(
            f"cannot write {folder}: {error.strerror or error}; STAGEBENCH_DATA names another place"
        ) from error


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
