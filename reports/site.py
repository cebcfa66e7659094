"""A run as a site: which sections stand on which page. It needs no server and no network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.cases import details, digits_of, listing
from reports.context import context
from reports.frame import Frame, Link, made, rendered, write_assets
from suite.analysis.rows import Row
from suite.analysis.summary import summarise, uncollected
from suite.files import write_whole
from suite.results.run_folder import RunFolder
from suite.worker.homes import without_homes

BEST = "best.toml"  # beside the pages, where a run has compared configurations
CASE = "case.html"  # shows the case that its address names


@dataclass(frozen=True)
class Page:
    """One file: the templates of its sections, in order. There is none where all of them are empty."""

    file: str
    title: str
    sections: tuple[str, ...]
    scripts: tuple[str, ...] = ()


PAGES = (
    Page("index.html", "Overview", ("overview", "case_table"), ("case_table.js",)),
    Page("speed.html", "Speed", ("imported", "speeds", "best", "steps")),
    Page("study.html", "The study's tables", ("study",)),
    Page("stages.html", "Stages", ("stages", "parts", "layers")),
    Page("scaling.html", "Scaling", ("scaling", "devices")),
    Page("communication.html", "Communication", ("aggregation", "exchange")),
    Page("input.html", "Input", ("input",)),
    Page("accuracy.html", "Accuracy", ("time_to_train", "learning", "epochs", "stragglers")),
    Page("predicted.html", "Predicted", ("predicted",), ("model.js", "what_if.js")),
    Page("evidence.html", "Evidence", ("proofs", "outcomes", "notes")),
    Page("machine.html", "Machine and method", ("machine", "method", "replay")),
)
PLACES = {name: page.file for page in PAGES for name in page.sections}


def write(folder: RunFolder, directory: Path) -> Path:
    """Write a run's pages, their data and what they share, and return the first one.

    StoreError when something cannot be read or written.
    """
    put(folder, directory)
    write_assets(directory)
    return directory / PAGES[0].file


def put(folder: RunFolder, directory: Path, root: str = "", home: str = "") -> dict[str, Any]:
    """The same without what pages share, which `root` leads to (see Frame). Returns what the sections were made of."""
    with uncollected():
        rows = summarise(folder)
        return _put(folder, rows, directory, root, home)


def _put(folder: RunFolder, rows: list[Row], directory: Path, root: str, home: str) -> dict[str, Any]:
    found = context(folder, rows)
    sections = rendered((*PLACES, "case"), {**found, **_addresses(single=False), "digits": digits_of(rows)})
    there = [page for page in PAGES if any(sections[name] for name in page.sections)]
    links = tuple(Link(page.file, page.title) for page in there)
    frame = Frame(found["title"], links, root, home)
    made(directory)
    for page in PAGES:
        if page in there:
            body = "\n".join(filter(None, (sections[name] for name in page.sections)))
            write_whole(directory / page.file, frame.page(body, page.title, page.file, page.scripts))
        else:
            (directory / page.file).unlink(missing_ok=True)
    write_whole(directory / CASE, frame.page(sections["case"], "Case", CASE, ("case.js",)))
    data = made(directory / "data")
    for name, text in (*listing(rows), *details(rows, folder.own_networks())):
        write_whole(data / name, without_homes(text))
    _write_best(found, directory)
    return found


def write_single(folder: RunFolder, directory: Path) -> Path:
    """Write the same but the pages of single cases as one file, which can be sent by mail."""
    rows = summarise(folder)
    found = context(folder, rows)
    page = made(directory) / PAGES[0].file
    write_whole(page, _single(found))
    _write_best(found, directory)
    return page


def render(folder: RunFolder, rows: list[Row]) -> str:
    """The single page as text."""
    return _single(context(folder, rows))


def _single(found: dict[str, Any]) -> str:
    names = [name for name in PLACES if name != "case_table"]
    sections = rendered(names, {**found, **_addresses(single=True)})
    return Frame(found["title"]).single("\n".join(filter(None, sections.values())))


def _addresses(single: bool) -> dict[str, Any]:
    return {
        "best_file": BEST,
        "case_file": "" if single else CASE,
        "to": lambda section: f"{'' if single else PLACES[section]}#{section}",
    }


def _write_best(found: dict[str, Any], directory: Path) -> None:
    if found["best_plan"]:
        write_whole(directory / BEST, without_homes(found["best_plan"]))
