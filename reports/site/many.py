"""Several runs on one site for any web host: a list, a comparison, each run's pages in a folder, a feed and badges.

A repository of results publishes itself: static/workflow.yml is its workflow of GitHub Actions, results.md its README.
"""

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import yaml

from stagebench.reports.charts.html import Body, Content, asset, joined, listing, note, small, table, tag
from stagebench.reports.pages.compared import compared, machine_of, systems_of
from stagebench.reports.pages.run import Section
from stagebench.reports.site import build
from stagebench.reports.site.build import Frame, made
from stagebench.suite.analysis.check_run import UNSEEN, check_run
from stagebench.suite.analysis.links import links
from stagebench.suite.analysis.runs import MeasuredRun
from stagebench.suite.errors import RequestError, StagebenchError
from stagebench.suite.files import real, write_whole
from stagebench.suite.results.run_folder import RunFolder, about_of
from stagebench.suite.text import command_line, counted, grouped

INDEX, SYSTEMS, COMPARED, DOCS, FEED = "index.html", "systems.html", "compared.html", "docs", "feed.xml"
ATOM = "http://www.w3.org/2005/Atom"
TITLE = "Runs of stagebench"
TAKEN = ("badges", DOCS, INDEX, SYSTEMS, COMPARED, FEED)  # by the site itself
FEW = 5  # problems of a run that is left out
MOST_FOLDERS = 10_000  # are looked through for runs: a second or two, where `/` or a network home can take minutes
PLACE = Path(".github/workflows/stagebench-pages.yml")  # in a repository of results
HEAD = "# Checks the runs of this repository on every branch; publishes those of the default branch as a site.\n"
IGNORED = "*/*/report/\n*/*/export/\n*.partial\n.lock\n"
OWN = Path(__file__).resolve().parents[2]  # the clone that this code runs from, or an environment's site-packages


class LeftOut(NamedTuple):
    """A run that is not published."""

    run: str  # its path below the folder of all
    problems: Sequence[str]


class Entry(NamedTuple):
    """A run in the list."""

    folder: str  # of its pages, in the site's; it is the run's permanent address
    title: str
    created: str  # ISO 8601
    cases: int
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
    left_out: Sequence[LeftOut] = (),
) -> list[Entry]:
    """Write the site and return its runs, the latest first; RequestError for a folder that is no run.

    `docs` is built documentation, which is copied into it; a site that is `published` has a feed and badges. Where all
    runs lie `below` a folder, their paths there are their addresses, and its folders of runs are systems.
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
    systems = _by_system(runs, [run for _, run in put], below)
    pages = {SYSTEMS: systems_of(systems), COMPARED: _compared(systems)}
    if docs:
        shutil.copytree(docs, directory / DOCS, dirs_exist_ok=True)
    menu = {INDEX: "Runs"}
    menu |= {SYSTEMS: "Systems"} if pages[SYSTEMS] else {}
    menu |= {COMPARED: "Comparison and history"} if pages[COMPARED] else {}
    menu |= {f"{DOCS}/{INDEX}": "Documentation"} if docs else {}
    frame = Frame(TITLE, menu if len(menu) > 1 else {}, feed=FEED if published else "", served=served)
    answer = next((sections[0].title for sections in pages.values() if sections), "")
    first = [_list(found, frame.feed, answer), *([_left_out(left_out)] if left_out else [])]
    write_whole(directory / INDEX, frame.page(first, file=INDEX))
    for file, sections in pages.items():
        if sections:
            write_whole(directory / file, frame.page(sections, menu[file], file))
        else:
            (directory / file).unlink(missing_ok=True)
    return found


def _by_system(
    paths: Sequence[Path], runs: Sequence[MeasuredRun | None], below: Path | None
) -> dict[str, list[MeasuredRun]]:
    """Return the measured runs by the folder that they are in; "" for those of no system."""
    systems: dict[str, list[MeasuredRun]] = {}
    for path, run in zip(paths, runs, strict=True):
        parts = real(path).relative_to(real(below)).parts if below else ()
        if run:
            systems.setdefault(parts[0] if len(parts) > 1 else "", []).append(run)
    return systems if "" not in systems else {"": [run for several in systems.values() for run in several]}


def _compared(systems: Mapping[str, Sequence[MeasuredRun]]) -> list[Section]:
    """Return the comparison and the history of the runs; of several systems, of each machine by itself."""
    runs = [(name, run) for name, several in systems.items() for run in several]
    machines = list(grouped(runs, lambda pair: machine_of([pair[1]]) if len(systems) > 1 else ()).values())
    sections = []
    for number, several in enumerate(machines):
        names = ", ".join(dict.fromkeys(name for name, _ in several))
        own = compared([run for _, run in several])
        if len(machines) > 1:
            own = [section._replace(id=f"{section.id}{number}", title=f"{names}: {section.title}") for section in own]
        sections += own
    return sections


def _left_out(runs: Sequence[LeftOut]) -> Section:
    items = [[tag("strong", one.run), listing(one.problems[:FEW])] for one in runs]
    words = f"{counted(len(runs), 'run')} left out: not whole, or altered"
    return Section("left-out", words, [listing(items)])


def _list(entries: Sequence[Entry], feed_: str, answer: str) -> Section:
    lines: list[Sequence[Content]] = []
    for entry in entries:
        place: Content = [entry.folder, [" · ", tag("a", "badge", href=entry.badge)] if feed_ else None]
        name = joined([tag("a", entry.title, href=f"{entry.folder}/{INDEX}"), small(place)])
        count = joined([counted(entry.cases, "case"), small(entry.outcomes)])
        lines.append([name, entry.answer, entry.created[:10], count])
    runs = table("Runs", "Run | result< | begun | outcomes<", Body(lines))
    every = counted(len(entries), "run")
    newest = f"The latest: {entries[0].title}, {entries[0].created[:10]}." if entries else ""
    also = f"{every}. {newest}" if answer else newest
    feeds = tag("p", tag("a", "Feed of new runs", href=feed_)) if feed_ else None
    return Section("runs", answer or every, [runs, feeds, note(UNSEEN) if feed_ else None], also)


def runs_in(directory: Path) -> list[Path]:
    """Return every run folder below a folder; RequestError when there is none, or too much to look through."""
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
    about, found = folder.about, build.put(folder, directory, f"../{INDEX}", served)
    counts = Counter(line.outcome for line in (links(folder) if about.of_comm else found.rows))
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    entry = Entry(name, found.title.rstrip("."), about.created, counts.total(), outcomes, found.answer)
    measured = found.rows and not about.imported
    return entry, MeasuredRun(Path(name), about, tuple(found.rows), folder.hosts()) if measured else None


def _of_path(run: Path, below: Path) -> str:
    """Return the folder of a run by its path alone: it stays, whichever runs come and go next to it."""
    parts = real(run).relative_to(real(below)).parts or (real(run).name,)
    name = _plain("--".join(parts))
    if tuple(name.split("--")) == parts and name not in TAKEN:
        return name
    return f"{name}~{hashlib.sha256('/'.join(parts).encode(errors='surrogateescape')).hexdigest()[:8]}"


def _names(runs: Iterable[Path]) -> list[str]:
    """Return a folder for each by its name; with a number where an older one has it."""
    found: list[str] = []
    for run in runs:
        name = _plain(real(run).name)
        taken = sum(each == name or each.startswith(f"{name}~") for each in found)
        found.append(f"{name}~{taken + 1}" if taken or name in TAKEN else name)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"


def publish(
    directory: Path, output: Path, address: str = "", docs: Path | None = None
) -> tuple[list[Entry], list[LeftOut]]:
    """Write the site of all runs below a folder that are whole; return them, and those that are not.

    `address` is where it will be, for the feed's permanent links.
    """
    whole, left_out = [], []
    for run in runs_in(directory):
        try:
            problems = [str(problem) for problem in check_run(run).problems]
        except StagebenchError as error:
            problems = [str(error)]
        if problems:
            left_out.append(LeftOut(str(real(run).relative_to(real(directory))), problems))
        else:
            whole.append(run)
    found = write(whole, output, docs, published=True, below=directory, left_out=left_out)
    write_whole(output / FEED, feed(found, address))
    made(output / "badges")
    for entry in found:
        write_whole(output / entry.badge, badge("stagebench", entry.outcomes or "nothing measured"))
    return found, left_out


def feed(entries: Sequence[Entry], address: str) -> str:
    """Return an Atom feed, an entry a run."""

    def element(above: ElementTree.Element, kind: str, text: str = "", **attributes: str) -> ElementTree.Element:
        made = ElementTree.SubElement(above, kind, attributes)
        made.text = text
        return made

    base = f"{address.rstrip('/')}/" if address else ""
    top = ElementTree.Element("feed", xmlns=ATOM)
    element(top, "id", base or "urn:stagebench:runs")
    element(top, "title", TITLE)
    element(top, "updated", entries[0].created if entries else "")
    element(element(top, "author"), "name", "stagebench")
    element(top, "link", rel="self", href=base + FEED)
    for entry in entries:
        one, place = element(top, "entry"), f"{base}{entry.folder}/{INDEX}"
        element(one, "id", place if base else f"urn:stagebench:{entry.folder}")  # a relative address is no identity
        element(one, "title", entry.title)
        element(one, "updated", entry.created)
        element(one, "summary", entry.answer or f"{entry.outcomes}.")
        element(one, "link", href=place)
    return ElementTree.tostring(top, "unicode", xml_declaration=True) + "\n"


def badge(left: str, right: str) -> str:
    """Return a label and a message as a picture, readable without its colours."""
    parts, begin = "", 0
    for text, shade in ((left, "#3a4450"), (right, "#0b5cad")):
        width = 12 + round(6.6 * len(text))  # pixels of 11 px DejaVu Sans, about
        parts += (
            f'<rect x="{begin}" width="{width}" height="20" fill="{shade}"/>'
            f'<text x="{begin + width / 2:g}" y="14" text-anchor="middle" fill="#fff">{escape(text)}</text>'
        )
        begin += width
    title = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{begin}" height="20" role="img" aria-label="{title}">'
        f'<title>{title}</title><g font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">{parts}</g></svg>\n'
    )


class NewFile(NamedTuple):
    """A file for a repository, not yet written."""

    path: Path
    text: str

    def write(self) -> bool:
        """Return False where there is one already: it is left as it is."""
        if self.path.exists():
            return False
        made(self.path.parent)
        write_whole(self.path, self.text)
        return True


def workflow_of(directory: Path, docs: Path | None = None, address: str = "") -> NewFile:
    """Return the workflow that does in the folder's repository what `publish` does with the same arguments.

    RequestError for folders that the repository does not hold.
    """
    place = real(directory)
    root = next((folder for folder in (place, *place.parents) if (folder / ".git").exists()), None)
    if root is None:
        raise RequestError(
            f"{directory} lies in no Git repository, so no workflow could publish it; begin one (`git init`), or name "
            "a folder in one"
        )
    beside = ("--docs", _within(root, docs)) if docs else ()
    # The site is outside the checkout: a folder `site` in it is the repository's own.
    line = f'{quoted("stagebench", "publish", _within(root, directory), *beside)} -o "$RUNNER_TEMP/site" --address '
    document = yaml.safe_load(asset("workflow.yml"))
    installing, publishing = document["jobs"]["pages"]["steps"][2:4]
    if root == OWN:
        installing["run"] = "pip install ."
        del installing["env"]
    publishing["run"] = line + (quoted(address) if address else '"$PAGES_ADDRESS"')
    if address:
        del publishing["env"]
    return NewFile(root / PLACE, HEAD + yaml.safe_dump(document, sort_keys=False, width=float("inf")))


def template_of(directory: Path, address: str = "") -> list[NewFile]:
    """Return the files with which a repository of results begins; RequestError for a folder in no Git repository."""
    named = {"README.md": asset("results.md"), ".gitignore": IGNORED}
    return [*(NewFile(directory / name, text) for name, text in named.items()), workflow_of(directory, None, address)]


def quoted(*words: str | Path) -> str:
    """Quote the words for a shell's line in a workflow, where GitHub replaces `${{ ... }}` before the shell reads it.

    The quotes around a word with a `$` are single ones: closing and opening them again behind it changes nothing.
    """
    return command_line(*words).replace("${{", "$''{{")


def _within(root: Path, folder: Path) -> Path:
    """Return the folder as it is called at the repository's root."""
    place = real(folder)
    if not place.is_relative_to(root):
        raise RequestError(f"{folder} does not lie in {root}, whose workflow publishes it; move it there")
    return place.relative_to(root)
