"""Several runs on one site: a page that lists them, one that compares them, and each run's pages in a folder."""

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import comm, site
from reports.compared import beside_each_other
from reports.frame import Frame, Link, made, rendered, write_assets
from suite.analysis.runs import MeasuredRun
from suite.errors import RequestError
from suite.files import real, write_whole
from suite.results.run_folder import RunFolder, about_of

INDEX, COMPARED, DOCS, FEED = "index.html", "compared.html", "docs", "feed.xml"
INDEX_ABOVE = f"../{INDEX}"
TITLE = "Runs of stagebench"
TAKEN = ("assets", "badges", DOCS, INDEX, COMPARED, FEED)  # by the site itself
MOST_FOLDERS = 10_000  # are looked through for runs: a second or two, where `/` or a network home can take minutes


@dataclass(frozen=True)
class Entry:
    """One run in the list."""

    folder: str  # of its pages, in the site's; it is the run's permanent address
    title: str
    created: str  # ISO 8601
    count: int  # cases
    outcomes: str  # in words
    findings: tuple[str, ...]

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
) -> list[Entry]:
    """Write the site and return its runs, the latest first; RequestError for what is no run.

    `docs` is built documentation, which is copied beside them; a site that is `published` has a feed and badges.
    Where all runs lie `below` a folder, their paths there are their addresses.
    """
    if docs and not (docs / INDEX).is_file():
        raise RequestError(f"{docs} holds no index.html; build the documentation, then name the folder of its pages")
    if docs and real(directory).is_relative_to(real(docs)):
        raise RequestError(f"{directory} lies in {docs}, which is copied into it; name a folder elsewhere with -o")
    write_assets(made(directory))
    runs = sorted(runs, key=lambda run: about_of(run).created)
    names = [_of_path(run, below) for run in runs] if below else _names(runs)
    put = [_put(run, directory / name, name) for run, name in zip(runs, names, strict=True)]
    found = sorted((entry for entry, _ in put), key=lambda entry: entry.created, reverse=True)
    beside = beside_each_other([run for _, run in put if run])
    if docs:
        shutil.copytree(docs, directory / DOCS, dirs_exist_ok=True)
    links = {INDEX: "Runs", **({COMPARED: "Comparison and history"} if beside else {})}
    links |= {f"{DOCS}/{INDEX}": "Documentation"} if docs else {}
    feed = FEED if published else ""
    frame = Frame(TITLE, tuple(map(Link, links, links.values())) if len(links) > 1 else (), feed=feed)
    body = rendered(["runs"], {"title": TITLE, "runs": found, "feed": feed})["runs"]
    write_whole(directory / INDEX, frame.page(body, file=INDEX))
    if beside:
        body = rendered(["compared"], {**beside, "case_file": ""})["compared"]
        write_whole(directory / COMPARED, frame.page(body, "Comparison and history", COMPARED))
    else:
        (directory / COMPARED).unlink(missing_ok=True)
    return found


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


def _put(run: Path, directory: Path, name: str) -> tuple[Entry, MeasuredRun | None]:
    """Beside its entry the run, where it is one that others may be compared with."""
    folder = RunFolder.open(run, None)
    if folder.about.of_comm:
        found = comm.put(folder, directory, "../", INDEX_ABOVE)
        outcomes = Counter(link.outcome for link in found["links"]).most_common()
        return _entry(name, found, outcomes, ()), None
    found = site.put(folder, directory, "../", INDEX_ABOVE)
    entry = _entry(name, found, found["progress"].outcomes, tuple(found["findings"]))
    rows = () if found["imported"] else tuple(found["every"])
    return entry, MeasuredRun(Path(name), folder.about, rows, found["hosts"]) if rows else None


def _entry(
    name: str, found: Mapping[str, Any], outcomes: Sequence[tuple[str, int]], findings: tuple[str, ...]
) -> Entry:
    words = ", ".join(f"{count} {outcome}" for outcome, count in outcomes)
    return Entry(name, found["title"], found["about"].created, sum(count for _, count in outcomes), words, findings)


def _of_path(run: Path, below: Path) -> str:
    """The folder of a run by its path alone: it stays, whichever runs come and go beside it."""
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
