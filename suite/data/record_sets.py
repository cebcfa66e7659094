"""Data sets packed as records for a framework's own reader: what they are made of, whether they still fit."""

import hashlib
import shlex
from pathlib import Path

from suite.contracts.adapter import Format
from suite.data.sets import kind_of, records_place
from suite.worker.array_files import loaded
from suite.worker.idx import pair
from suite.worker.image_folder import listed
from suite.worker.packed_set import read_marker
from workloads.catalogue import Workload


def missing(data: str, source: Path, form: Format, workload: Workload) -> str | None:
    """Why a set's records cannot be read, with the remedy; None when they can."""
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
    """Twelve digits that change when samples come, go or are moved to another class; an array file's size and time."""
    if kind_of(source) == "folder":
        text = "\n".join(f"{Path(path).relative_to(source)} {label}" for path, label in listed(str(source)).files)
    else:
        files = [Path(file) for file in pair(str(source)) or ()] if source.is_dir() else [source]
        text = "\n".join(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def count(source: Path) -> int:
    return len(listed(str(source)).files) if kind_of(source) == "folder" else len(loaded(str(source))[1])
