"""Several runs on one site: a page that lists them, one that compares them, and each run's pages in a folder."""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports import comm, site
from reports.compared import beside_each_other
from reports.frame import Frame, Link, made, rendered, write_assets
from suite.analysis.conditions import MeasuredRun
from suite.comm.records import CommFolder
from suite.errors import RequestError
from suite.files import write_whole
from suite.foreign.folder import is_comm, opened
from suite.results.run_folder import RunFolder

INDEX, COMPARED, DOCS = "index.html", "compared.html", "docs"


@dataclass(frozen=True)
class Entry:
    """One run in the list."""

    folder: str  # of its pages, in the site's; it is the run's permanent address
    title: str
    created: str  # ISO 8601
    count: int  # cases
    outcomes: str  # in words
    findings: tuple[str, ...]


def write(
    runs: Sequence[Path], directory: Path, title: str = "Runs of stagebench", docs: Path | None = None
) -> list[Entry]:
    """Write the site and return its runs, the latest first; RequestError for what is no run.

    `docs` is built documentation, which is copied beside them.
    """
    if docs and not (docs / INDEX).is_file():
        raise RequestError(f"{docs} holds no index.html; build the documentation, then name the folder of its pages")
    write_assets(made(directory))
    put = [_put(run, directory / name, name) for run, name in zip(runs, _names(runs), strict=True)]
    found = sorted((entry for entry, _ in put), key=lambda entry: entry.created, reverse=True)
    beside = beside_each_other([run for _, run in put if run])
    if docs:
        shutil.copytree(docs, directory / DOCS, dirs_exist_ok=True)
    links = {INDEX: "Runs", **({COMPARED: "Comparison and history"} if beside else {})}
    links |= {f"{DOCS}/{INDEX}": "Documentation"} if docs else {}
    frame = Frame(title, tuple(map(Link, links, links.values())) if len(links) > 1 else ())
    body = rendered(["runs"], {"title": title, "runs": found})["runs"]
    write_whole(directory / INDEX, frame.page(body, file=INDEX))
    if beside:
        body = rendered(["compared"], {**beside, "case_file": ""})["compared"]
        write_whole(directory / COMPARED, frame.page(body, "Comparison and history", COMPARED))
    else:
        (directory / COMPARED).unlink(missing_ok=True)
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


def _put(run: Path, directory: Path, name: str) -> tuple[Entry, MeasuredRun | None]:
    """Beside its entry the run, where it is one that others may be compared with."""
    if is_comm(run):
        links = opened(run, CommFolder)
        comm.put(links, directory, "../", "../index.html")
        return Entry(name, comm.TITLE, links.about.created, len(links.cases), "", ()), None
    folder = opened(run, RunFolder)
    found = site.put(folder, directory, "../", "../index.html")
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["progress"].outcomes)
    entry = Entry(name, found["title"], folder.about.created, found["count"], outcomes, tuple(found["findings"]))
    rows = () if found["imported"] else tuple(found["every"])
    return entry, MeasuredRun(Path(name), folder.about, rows, found["hosts"]) if rows else None


def _names(runs: Iterable[Path]) -> list[str]:
    """A folder for each: the run's name, with a number where another one has it."""
    found: list[str] = []
    for run in runs:
        name = re.sub(r"[^\w.-]+", "-", run.resolve().name).strip(".-") or "run"
        taken = sum(each == name or each.startswith(f"{name}~") for each in found)
        found.append(f"{name}~{taken + 1}" if taken or name in ("assets", DOCS) else name)
    return found
