"""Several runs on one site for any web host: a list, a comparison, each run's pages in a folder, a feed and badges."""

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from xml.etree import ElementTree

from reports.charts.html import Body, Content, joined, small, table, tag
from reports.pages.comm import comm_sections, title_of
from reports.pages.compared import compared
from reports.pages.run import Section
from reports.site import build
from reports.site.frame import Frame, Link, made
from suite.analysis.links import links
from suite.analysis.runs import MeasuredRun
from suite.errors import RequestError
from suite.files import real, write_whole
from suite.results.run_folder import RunFolder, about_of

INDEX, COMPARED, DOCS, FEED = "index.html", "compared.html", "docs", "feed.xml"
ATOM = "http://www.w3.org/2005/Atom"
INDEX_ABOVE = f"../{INDEX}"
TITLE = "Runs of stagebench"
TAKEN = ("badges", DOCS, INDEX, COMPARED, FEED)  # by the site itself
MOST_FOLDERS = 10_000  # are looked through for runs: a second or two, where `/` or a network home can take minutes


@dataclass(frozen=True)
class Entry:
    """A run in the list."""

    folder: str  # of its pages, in the site's; it is the run's permanent address
    title: str
    created: str  # ISO 8601
    count: int  # cases
    outcomes: str  # in words
    answer: str  # to its plan's question

    @property
    def badge(self) -> str:
        """The address of its badge, where the site is published."""
        return f"badges/{self.folder}.svg"


def write(
    runs: Sequence[Path],
    directory: Path,
    docs: Path | None = None,
    published: bool = False,
    below: Path | None = None,
    served: bool = False,
) -> list[Entry]:
    """Write the site and return its runs, the latest first; RequestError for a folder that is no run.

    `docs` is built documentation, which is copied into it; a site that is `published` has a feed and badges. Where all
    runs lie `below` a folder, their paths there are their addresses.
    """
    if docs and not (docs / INDEX).is_file():
        raise RequestError(f"{docs} holds no index.html; build the documentation, then name the folder of its pages")
    if docs and real(directory).is_relative_to(real(docs)):
        raise RequestError(f"{directory} lies in {docs}, which is copied into it; name a folder elsewhere with -o")
    made(directory)
    runs = sorted(runs, key=lambda run: about_of(run).created)
    names = [_of_path(run, below) for run in runs] if below else _names(runs)
    put = [_put(run, directory / name, name, served) for run, name in zip(runs, names, strict=True)]
    found = sorted((entry for entry, _ in put), key=lambda entry: entry.created, reverse=True)
    sections = compared([run for _, run in put if run])
    if docs:
        shutil.copytree(docs, directory / DOCS, dirs_exist_ok=True)
    menu = {INDEX: "Runs", **({COMPARED: "Comparison and history"} if sections else {})}
    menu |= {f"{DOCS}/{INDEX}": "Documentation"} if docs else {}
    feed_ = FEED if published else ""
    frame = Frame(TITLE, tuple(map(Link, menu, menu.values())) if len(menu) > 1 else (), feed=feed_, served=served)
    write_whole(directory / INDEX, frame.page([_list(found, feed_)], file=INDEX))
    if sections:
        write_whole(directory / COMPARED, frame.page(sections, "Comparison and history", COMPARED))
    else:
        (directory / COMPARED).unlink(missing_ok=True)
    return found


def _list(entries: Sequence[Entry], feed_: str) -> Section:
    """Return the list of all runs."""
    lines: list[Sequence[Content]] = []
    for entry in entries:
        place: Content = [entry.folder, [" · ", tag("a", "badge", href=entry.badge)] if feed_ else None]
        name = joined([tag("a", entry.title, href=f"{entry.folder}/{INDEX}"), small(place)])
        count = f"{entry.count} case{'' if entry.count == 1 else 's'}"
        lines.append([name, entry.answer, entry.created[:10], joined([count, small(entry.outcomes)])])
    heads = "Run | result< | begun | outcomes<"
    title = f"{len(entries)} run{'' if len(entries) == 1 else 's'}"
    newest = f"The latest: {entries[0].title}, {entries[0].created[:10]}." if entries else ""
    feeds = tag("p", tag("a", "Feed of new runs", href=feed_)) if feed_ else None
    return Section("runs", title, [table("Runs", heads, Body(lines)), feeds], newest)


def write_comm(folder: RunFolder, directory: Path, home: str = "", served: bool = False) -> Path:
    """Write the page of a run of `stagebench comm`, which is complete in itself; StoreError as for a site."""
    frame = Frame(title_of(folder), home=home, served=served)
    write_whole(made(directory) / INDEX, frame.page(comm_sections(folder)))
    return directory / INDEX


def runs_in(directory: Path) -> list[Path]:
    """Every run folder below a folder; RequestError when there is none, or too much to look through."""
    found = []
    for count, (place, folders, files) in enumerate(os.walk(directory)):
        if count >= MOST_FOLDERS:
            raise RequestError(
                f"{directory} has more than {MOST_FOLDERS:,} folders to look for runs in; name a folder below it "
                "that holds the runs and little else"
            )
        if "run.json" in files:
            found.append(Path(place))
            folders.clear()  # a run holds no other one, but thousands of files
        folders.sort()
    if not found:
        raise RequestError(f"{directory} holds no run folder; name the folder that `stagebench run -o` wrote into")
    return found


def _put(run: Path, directory: Path, name: str, served: bool) -> tuple[Entry, MeasuredRun | None]:
    """Write one run's pages; return its entry and the run, where it is one that others may be compared with."""
    folder = RunFolder.open(run, None)
    if folder.about.of_comm:
        write_comm(folder, directory, INDEX_ABOVE, served)
        counts = Counter(link.outcome for link in links(folder))
        return Entry(name, title_of(folder), folder.about.created, counts.total(), _words(counts), ""), None
    found = build.put(folder, directory, INDEX_ABOVE, served)
    rows = found.report.rows
    counts = Counter(row.outcome for row in rows)
    title = found.answer if found.report.imported else found.title
    entry = Entry(name, title.rstrip("."), folder.about.created, len(rows), _words(counts), found.answer)
    measured = rows and not found.report.imported
    return entry, MeasuredRun(Path(name), folder.about, tuple(rows), folder.hosts()) if measured else None


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())


def _of_path(run: Path, below: Path) -> str:
    """The folder of a run by its path alone: it stays, whichever runs come and go next to it."""
    parts = real(run).relative_to(real(below)).parts or (real(run).name,)
    name = _plain("--".join(parts))
    if tuple(name.split("--")) == parts and name not in TAKEN:
        return name
    return f"{name}~{hashlib.sha256('/'.join(parts).encode(errors='surrogateescape')).hexdigest()[:8]}"


def _names(runs: Iterable[Path]) -> list[str]:
    """A folder for each by its name; with a number where an older one has it."""
    found: list[str] = []
    for run in runs:
        name = _plain(real(run).name)
        taken = sum(each == name or each.startswith(f"{name}~") for each in found)
        found.append(f"{name}~{taken + 1}" if taken or name in TAKEN else name)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"


def publish(directory: Path, output: Path, address: str = "", docs: Path | None = None) -> list[Entry]:
    """Write the site of all runs below a folder; `address` is where it will be, for the feed's permanent links."""
    found = write(runs_in(directory), output, docs, published=True, below=directory)
    write_whole(output / FEED, feed(found, address))
    made(output / "badges")
    for entry in found:
        write_whole(output / entry.badge, badge("stagebench", entry.outcomes or "nothing measured"))
    return found


def feed(entries: Sequence[Entry], address: str) -> str:
    """An Atom feed, an entry a run."""
    base = f"{address.rstrip('/')}/" if address else ""
    top = ElementTree.Element("feed", xmlns=ATOM)
    _add(top, id=base or "urn:stagebench:runs", title=TITLE, updated=entries[0].created if entries else "")
    _add(ElementTree.SubElement(top, "author"), name="stagebench")
    ElementTree.SubElement(top, "link", rel="self", href=base + FEED)
    for entry in entries:
        one = ElementTree.SubElement(top, "entry")
        place = f"{base}{entry.folder}/index.html"
        id_ = place if base else f"urn:stagebench:{entry.folder}"  # a relative address is no identity
        summary = entry.answer or f"{entry.outcomes}."
        _add(one, id=id_, title=entry.title, updated=entry.created, summary=summary)
        ElementTree.SubElement(one, "link", href=place)
    return ElementTree.tostring(top, "unicode", xml_declaration=True) + "\n"


def _add(element: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(element, name).text = text


def badge(left: str, right: str) -> str:
    """A label and a message as a picture, readable without its colours."""
    widths = [12 + round(6.6 * len(text)) for text in (left, right)]  # pixels of 11 px DejaVu Sans, about
    parts = "".join(_part(*part) for part in _parts((left, right), widths))
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" role="img" aria-label="{title}">'
        f'<title>{title}</title><g font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">{parts}</g></svg>\n'
    )


def _parts(texts: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, int, int, str]]:
    begin = 0
    for text, width, shade in zip(texts, widths, ("#3a4450", "#0b5cad"), strict=True):
        yield text, begin, width, shade
        begin += width


def _part(text: str, begin: int, width: int, shade: str) -> str:
    return (
        f'<rect x="{begin}" width="{width}" height="20" fill="{shade}"/>'
        f'<text x="{begin + width / 2:g}" y="14" text-anchor="middle" fill="#fff">{escape(text)}</text>'
    )
