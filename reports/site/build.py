"""A run as a site: which sections are on which page. It needs no server and no network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stagebench.reports.charts.html import note, tag
from stagebench.reports.pages import (
    communication,
    epochs,
    evidence,
    inference,
    inputs,
    learning,
    overview,
    predicted,
    scaling,
    serving,
    speed,
    stages,
    study,
)
from stagebench.reports.pages.case import details, digits_of
from stagebench.reports.pages.comm import comm_sections
from stagebench.reports.pages.comm import title_of as title_of_comm
from stagebench.reports.pages.run import CASE, Maker, Report, Section
from stagebench.reports.site.frame import Frame, made
from stagebench.suite.analysis.best import contests
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.summary import summarise, uncollected
from stagebench.suite.files import write_whole
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.homes import without_homes

FIRST, METHOD = "index.html", "method.html"


class Page(NamedTuple):
    """Sections by their ids, in order. There is no page where all of them are empty."""

    title: str
    sections: Mapping[str, Maker]
    scripts: tuple[str, ...] = ()


PAGES = {
    "speed.html": Page(
        "Speed",
        {"speeds": speed.speeds, "best": speed.best, "steps": speed.steps, "startup": speed.startup},
    ),
    "inference.html": Page("Inference", {"latency": inference.latency, "serving": serving.serving}),
    "study.html": Page("The study’s tables", {"study": study.study}),
    "stages.html": Page("Stages", {"stages": stages.stages, "parts": stages.parts, "layers": stages.layers}),
    "scaling.html": Page("Scaling", {"scaling": scaling.scaling, "devices": epochs.devices}),
    "communication.html": Page(
        "Communication", {"aggregation": communication.aggregation, "exchange": communication.exchange}
    ),
    "input.html": Page("Input", {"input": inputs.inputs}),
    "accuracy.html": Page(
        "Accuracy",
        {
            "time_to_train": epochs.time_to_train,
            "learning": learning.learning,
            "epochs": epochs.epochs,
            "stragglers": communication.straggling,
        },
    ),
    "predicted.html": Page(
        "Predicted", {"predicted": predicted.predicted, "what_if": predicted.what_if}, ("what_if.js",)
    ),
    "evidence.html": Page(
        "Evidence", {"proofs": evidence.proofs, "outcomes": evidence.outcomes, "notes": evidence.notes}
    ),
}
TITLES = {FIRST: "Overview", **{file: page.title for file, page in PAGES.items()}, METHOD: "Method"}
FILES = tuple(TITLES)
PLACES = {
    **dict.fromkeys(("overview", "cases"), FIRST),
    **{section: file for file, page in PAGES.items() for section in page.sections},
    **dict.fromkeys(("method", "machine", "replay"), METHOD),
}


class Written(NamedTuple):
    """A run whose pages were written: what lists of runs say of it."""

    title: str
    answer: str = ""  # to its plan's question
    rows: Sequence[Row] = ()  # of trainings


def sections_of(report: Report) -> dict[str, list[Section]]:
    """Return the sections by file."""
    made_of = {
        file: [made for maker in page.sections.values() if (made := maker(report))] for file, page in PAGES.items()
    }
    every = {section.id: section for sections in made_of.values() for section in sections}
    first = [overview.overview(report, every), overview.cases(report)]
    last = [evidence.method(report, every.values()), evidence.machine(report), evidence.replay(report)]
    return {
        file: sections
        for file, sections in {FIRST: first, **made_of, METHOD: list(filter(None, last))}.items()
        if sections
    }


def write(folder: RunFolder, directory: Path, single: bool = False) -> Path:
    """Write a run's pages and their data, and return the first one; StoreError for what cannot be read or written.

    A `single` one can be sent by mail: one file, without the pages of single cases. A run of `stagebench comm` is
    always one.
    """
    if folder.about.of_comm or not single:
        put(folder, directory)
    else:
        report = Report(folder, summarise(folder))
        write_whole(made(directory) / FIRST, _single(report))
        _write_best(report, directory)
    return directory / FIRST


@uncollected()
def put(folder: RunFolder, directory: Path, home: str = "", served: bool = False) -> Written:
    """Write a run's pages; `home` leads to the page about all runs."""
    if folder.about.of_comm:
        title = title_of_comm(folder)
        frame = Frame(title, {}, home, served=served)
        write_whole(made(directory) / FIRST, frame.page(comm_sections(folder)))
        return Written(title)
    report = Report(folder, summarise(folder), PLACES)
    title, sections = title_of(report), sections_of(report)
    links = {file: name for file, name in TITLES.items() if file in sections}
    frame = Frame(title, links, home, footer=evidence.footer(report), served=served)
    made(directory)
    for file in FILES:
        if file in sections:
            scripts = PAGES[file].scripts if file in PAGES else ()
            write_whole(directory / file, frame.page(sections[file], TITLES[file], file, scripts))
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
    if report.imported:
        return Written(first.title, first.also, report.rows)
    return Written(title, " ".join(filter(None, (f"{first.title}.", first.also))), report.rows)


def title_of(report: Report) -> str:
    """Return the run's own title, which is above the answer."""
    if report.imported:
        return "Imported results"
    return report.plan.title or report.plan.name or "A run of stagebench"


def render(folder: RunFolder, rows: list[Row]) -> str:
    """Return the single page as text."""
    return _single(Report(folder, rows))


def _single(report: Report) -> str:
    sections = [section for file in sections_of(report).values() for section in file]
    links = {f"#{section.id}": section.name or section.title for section in sections if section.name}
    return Frame(title_of(report), links, footer=evidence.footer(report)).page(sections)


def _write_best(report: Report, directory: Path) -> None:
    if found := contests(report.rows):
        write_whole(directory / speed.FILE, without_homes(speed.plan_of(report, found)))
