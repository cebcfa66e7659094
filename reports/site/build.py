"""A run as a site: which sections are on which page, and the frame of all pages. It needs no server and no network.

Everything that a page needs is in it, and a policy lets nothing else in.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from stagebench.reports.charts.html import Content, asset, below_title, joined, note, tag
from stagebench.reports.charts.rows import HATCH
from stagebench.reports.pages import (
    communication,
    epochs,
    evidence,
    inference,
    inputs,
    learning,
    overview,
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
from stagebench.suite import __version__
from stagebench.suite.analysis.best import contests
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.standing import Answer
from stagebench.suite.analysis.summary import summarise, uncollected
from stagebench.suite.files import disk, write_whole
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.homes import without_homes

FOLLOW = "/follow.js"  # what a served page asks for
LOGO = Markup(
    '<svg viewBox="0 0 20 16" aria-hidden="true"><rect class="forward" width="7" height="16"/>'
    '<rect class="backward" x="7" width="9" height="16"/>'
    '<rect class="communication" x="16" width="4" height="16"/></svg>'
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="stagebench {version}">
{head}<style>
{style}</style>
</head>
<body>
{body}
{scripts}</body>
</html>
"""


class Frame(NamedTuple):
    """The parts that the pages of a run have in common.

    `links` are the menu's titles by address. `home` leads to the page about all runs, `feed` to their feed; a page that
    is `served` asks whether it has changed.
    """

    title: str
    links: Mapping[str, str]
    home: str = ""
    feed: str = ""
    footer: Content = None
    served: bool = False

    def page(self, sections: Sequence[Section], name: str = "", file: str = "", scripts: Sequence[str] = ()) -> str:
        """Return a page about sections: the first one's title is the page's. `scripts` are of `static`."""
        first, *others = sections
        links = {**({self.home: "All runs"} if self.home else {}), **self.links}
        menu = [tag("a", title, href=to, aria_current="page" if to == file else None) for to, title in links.items()]
        brand = tag("a", LOGO, "stagebench", href=next(iter(links), "#main"), class_="brand")
        # The first section's title is the page's, so that its panels' are the next level.
        shown = [tag("section", below_title(first.body), id=first.id), *map(_section, others)]
        body = [
            tag("a", "Skip to the content", class_="skip", href="#main"),
            tag("header", brand, tag("nav", menu, aria_label="Pages") if menu else None, class_="site"),
            tag("svg", HATCH, width="0", height="0", aria_hidden="true", class_="defs"),
            tag("main", self._masthead(first, file), shown, id="main"),
            tag("footer", self.footer or tag("p", f"stagebench {__version__}")),
        ]
        head = tag("title", " · ".join(dict.fromkeys(filter(None, (name, self.title, "stagebench"))))) + "\n"
        if self.feed:
            kind = "application/atom+xml"
            head += tag("link", rel="alternate", type=kind, title=self.title, href=self.feed) + "\n"
        inside = [asset(script) for script in ("site.js", *scripts)]
        hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in inside)
        digests = " ".join(f"'sha256-{digest}'" for digest in hashes)
        follow = f'<script src="{FOLLOW}"></script>\n' if self.served else ""
        return PAGE.format(
            policy=f"default-src 'none'; script-src {digests} 'self' file:; style-src 'unsafe-inline'; img-src data:",
            version=__version__,
            head=head,
            style=asset("charts.css") + asset("site.css"),
            body=without_homes(str(joined(body))),
            scripts="".join(f"<script>{script}</script>\n" for script in inside) + follow,
        )

    def _masthead(self, first: Section, file: str) -> Content:
        if not first.title:
            return None
        run = tag("a", self.title, href="index.html") if file not in ("", "index.html") else self.title
        eyebrow = tag("p", run, class_="eyebrow") if self.title != first.title else None
        also = tag("p", first.also, class_="also") if first.also else None
        return tag("div", eyebrow, tag("h1", first.title), also, class_="masthead")


def _section(section: Section) -> Markup:
    also = tag("p", section.also, class_="sub") if section.also else None
    return tag("section", tag("h2", section.title) if section.title else None, also, section.body, id=section.id)


def made(directory: Path) -> Path:
    """Return the folder, which is there now; StoreError when the disk refuses."""
    with disk(f"cannot make the folder {directory}", "name another one with -o"):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


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
    "predicted.html": Page("Predicted", {"predicted": scaling.predicted, "what_if": scaling.what_if}, ("what_if.js",)),
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


def answer_of(report: Report) -> Answer:
    """Return the title of the overview and the rest of it, of no more sections than it needs."""
    makers = {name: maker for page in PAGES.values() for name, maker in page.sections.items()}
    return overview.answer(report, makers, lambda name: makers[name](report))


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
    needs = ["Scripts draw this page. ", tag("a", "The table of all cases", href=f"{FIRST}#cases"), " needs none; "]
    needs += [
        "a case’s records are ",
        tag("code", "records/ID-r*.json"),
        " in the run folder: its ID ends the address.",
    ]
    unscripted = tag("noscript", tag("h1", "A case"), note(needs))
    place = tag("div", unscripted, id="case", data_digits=digits_of(report.rows), aria_live="polite")
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
    defined = evidence.definitions()
    links = {f"#{section.id}": defined[section.id][0] for section in sections if section.id in defined}
    return Frame(title_of(report), links if len(links) > 1 else {}, footer=evidence.footer(report)).page(sections)


def _write_best(report: Report, directory: Path) -> None:
    if found := contests(report.rows):
        write_whole(directory / speed.FILE, without_homes(speed.plan_of(report, found)))
