"""A run as a site: which sections are on which page. It needs no server and no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reports.charts.html import note, tag
from reports.pages import (
    communication,
    epochs,
    evidence,
    inputs,
    learning,
    method,
    overview,
    predicted,
    scaling,
    speed,
    stages,
    startup,
    study,
)
from reports.pages.case import details, digits_of
from reports.pages.run import CASE, Maker, Report, Section
from reports.site.frame import Frame, Link, made
from suite.analysis.best import contests
from suite.analysis.rows import Row
from suite.analysis.summary import summarise, uncollected
from suite.files import write_whole
from suite.results.run_folder import RunFolder
from suite.worker.homes import without_homes

FIRST = "index.html"


@dataclass(frozen=True)
class Page:
    """A file: its sections by their ids, in order. There is none where all of them are empty."""

    file: str
    title: str
    sections: Mapping[str, Maker]
    scripts: tuple[str, ...] = ()


PAGES = (
    Page(
        "speed.html",
        "Speed",
        {"speeds": speed.speeds, "best": speed.best, "steps": speed.steps, "startup": startup.startup},
    ),
    Page("study.html", "The study’s tables", {"study": study.study}),
    Page("stages.html", "Stages", {"stages": stages.stages, "parts": stages.parts, "layers": stages.layers}),
    Page("scaling.html", "Scaling", {"scaling": scaling.scaling, "devices": epochs.devices}),
    Page(
        "communication.html",
        "Communication",
        {"aggregation": communication.aggregation, "exchange": communication.exchange},
    ),
    Page("input.html", "Input", {"input": inputs.inputs}),
    Page(
        "accuracy.html",
        "Accuracy",
        {
            "time_to_train": epochs.time_to_train,
            "learning": learning.learning,
            "epochs": epochs.epochs,
            "stragglers": communication.straggling,
        },
    ),
    Page(
        "predicted.html", "Predicted", {"predicted": predicted.predicted, "what_if": predicted.what_if}, ("what_if.js",)
    ),
    Page(
        "evidence.html", "Evidence", {"proofs": evidence.proofs, "outcomes": evidence.outcomes, "notes": evidence.notes}
    ),
)
LAST = {"method": "Method", "machine": "Machine", "replay": "Replay"}  # sections of the last page
METHOD = "method.html"
PLACES = {
    "overview": FIRST,
    "cases": FIRST,
    **{section: page.file for page in PAGES for section in page.sections},
    **dict.fromkeys(LAST, METHOD),
}
FILES = (FIRST, *(page.file for page in PAGES), METHOD)


@dataclass(frozen=True)
class Written:
    """A run whose pages were written: what lists of runs say of it."""

    report: Report
    title: str
    answer: str  # to its plan's question


def sections_of(report: Report) -> dict[str, list[Section]]:
    """Return the sections by file."""
    found: dict[str, list[Section]] = {FIRST: []}
    for page in PAGES:
        sections = [section for maker in page.sections.values() if (section := maker(report))]
        if sections:
            found[page.file] = sections
    every = {section.id: section for sections in found.values() for section in sections}
    found[FIRST] = [overview.overview(report, every), overview.cases(report)]
    last = [method.method(report, every.values()), method.machine(report), method.replay(report)]
    if sections := [section for section in last if section]:
        found[METHOD] = sections
    return found


def write(folder: RunFolder, directory: Path) -> Path:
    """Write a run's pages and their data, and return the first one; StoreError for what cannot be read or written."""
    put(folder, directory)
    return directory / FIRST


def put(folder: RunFolder, directory: Path, home: str = "", served: bool = False) -> Written:
    """Write a run's pages; `home` leads to the page about all runs."""
    with uncollected():
        return _put(Report(folder, summarise(folder), PLACES), directory, home, served)


def _put(report: Report, directory: Path, home: str, served: bool) -> Written:
    sections = sections_of(report)
    named = {FIRST: "Overview", **{page.file: page.title for page in PAGES}, METHOD: "Method"}
    links = tuple(Link(file, named[file]) for file in FILES if file in sections)
    scripts = {page.file: page.scripts for page in PAGES}
    frame = Frame(title_of(report), links, home, footer=method.footer(report), served=served)
    made(directory)
    for file in FILES:
        if file in sections:
            write_whole(directory / file, frame.page(sections[file], named[file], file, scripts.get(file, ())))
        else:
            (directory / file).unlink(missing_ok=True)
    loading = note("Loading … This page needs JavaScript.")
    place = tag("div", loading, id="case", data_digits=digits_of(report.rows), aria_live="polite")
    case = Section("a-case", "", [place, tag("div", id="times")])
    write_whole(directory / CASE, frame.page([case], "Case", CASE, ("case.js",)))
    data = made(directory / "data")
    for name, text in (*overview.pieces(report), *details(report)):
        write_whole(data / name, without_homes(text))
    pictures = made(directory / "charts")
    for old in pictures.glob("*.svg"):
        old.unlink()
    for name, chart in report.charts.items():
        write_whole(pictures / f"{name}.svg", without_homes(chart.svg()))
    _write_best(report, directory)
    first = sections[FIRST][0]
    return Written(report, title_of(report), " ".join(filter(None, (f"{first.title}.", first.also))))


def title_of(report: Report) -> str:
    """Return the run's own title, which is above the answer."""
    if report.imported:
        return "Imported results"
    return report.plan.title or report.plan.name or "A run of stagebench"


def write_single(folder: RunFolder, directory: Path) -> Path:
    """Write a run as one file without the pages of single cases, which can be sent by mail."""
    report = Report(folder, summarise(folder))
    page = made(directory) / FIRST
    write_whole(page, _single(report))
    _write_best(report, directory)
    return page


def render(folder: RunFolder, rows: list[Row]) -> str:
    """Return the single page as text."""
    return _single(Report(folder, rows))


def _single(report: Report) -> str:
    sections = [section for file in sections_of(report).values() for section in file]
    links = tuple(Link(f"#{section.id}", section.name or section.title) for section in sections if section.name)
    return Frame(title_of(report), links, footer=method.footer(report)).page(sections)


def _write_best(report: Report, directory: Path) -> None:
    if found := contests(report.rows):
        write_whole(directory / speed.FILE, without_homes(speed.plan_of(report, found)))
