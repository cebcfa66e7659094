"""Several runs on one site: a page that lists them, and each run's pages in a folder of its own."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports import comm, site
from reports.frame import Frame, made, rendered, write_assets
from suite.comm.records import KIND, CommFolder
from suite.errors import RequestError
from suite.files import write_whole
from suite.results.run_folder import RunFolder, about_of


@dataclass(frozen=True)
class Entry:
    """One run in the list."""

    folder: str  # of its pages, in the site's; it is the run's permanent address
    title: str
    created: str  # ISO 8601
    count: int  # cases
    outcomes: str  # in words
    findings: tuple[str, ...]


def write(runs: Sequence[Path], directory: Path, title: str = "Runs of stagebench") -> list[Entry]:
    """Write the site and return its runs, the latest first; RequestError for what is no run."""
    write_assets(made(directory))
    found = [_put(run, directory / name, name) for run, name in zip(runs, _names(runs), strict=True)]
    found.sort(key=lambda entry: entry.created, reverse=True)
    body = rendered(["runs"], {"title": title, "runs": found})["runs"]
    write_whole(directory / "index.html", Frame(title).page(body))
    return found


def runs_in(directory: Path) -> list[Path]:
    """Every run folder below a folder; RequestError when there is none."""
    found = []
    for place, folders, files in os.walk(directory):
        if "run.json" in files:
            found.append(Path(place))
            folders.clear()  # a run holds no other one, but thousands of files
        folders.sort()
    if not found:
        raise RequestError(f"{directory} holds no run folder; name the folder that `stagebench run -o` wrote into")
    return found


def _put(run: Path, directory: Path, name: str) -> Entry:
    about = about_of(run)
    if about.kind == KIND:
        comm.put(CommFolder.open(run), directory, "../", "../index.html")
        return Entry(name, comm.TITLE, about.created, len(CommFolder.open(run).cases), "", ())
    found = site.put(RunFolder.open(run), directory, "../", "../index.html")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["progress"].outcomes)
    return Entry(name, found["title"], about.created, found["count"], outcomes, tuple(found["findings"]))


def _names(runs: Iterable[Path]) -> list[str]:
    """A folder for each: the run's name, with a number where another one has it."""
    found: list[str] = []
    for run in runs:
        name = re.sub(r"[^\w.-]+", "-", run.resolve().name).strip(".-") or "run"
        taken = sum(each == name or each.startswith(f"{name}~") for each in found)
        found.append(f"{name}~{taken + 1}" if taken or name == "assets" else name)
    return found
