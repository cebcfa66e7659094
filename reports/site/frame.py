"""The frame of all pages: everything that one needs is in it, and a policy lets nothing else in."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from reports.charts.html import Content, below_title, joined, tag
from reports.pages.run import Section
from suite import __version__
from suite.files import disk
from suite.worker.homes import without_homes

FOLLOW = "/follow.js"  # what a served page asks for
LOGO = Markup(
    '<svg viewBox="0 0 20 16" aria-hidden="true"><rect class="forward" width="7" height="16"/>'
    '<rect class="backward" x="7" width="9" height="16"/>'
    '<rect class="communication" x="16" width="4" height="16"/></svg>'
)
HATCH = Markup(
    '<svg width="0" height="0" aria-hidden="true" class="defs"><pattern id="hatch" width="5" height="5" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V5" stroke-width="3"/></pattern></svg>'
)


@dataclass(frozen=True)
class Link:
    """An entry of the menu."""

    address: str
    title: str


@dataclass(frozen=True)
class Frame:
    """The parts that the pages of a run have in common.

    `home` leads to the page about all runs, `feed` to their feed; a page that is `served` asks whether it has changed.
    """

    title: str
    links: tuple[Link, ...] = ()
    home: str = ""
    feed: str = ""
    footer: Content = None
    served: bool = False

    def page(self, sections: Sequence[Section], name: str = "", file: str = "", scripts: Sequence[str] = ()) -> str:
        """Return a page about sections: the first one's title is the page's. `scripts` are of `static`."""
        eyebrow = tag("a", self.title, href="index.html") if file not in ("", "index.html") else self.title
        first = sections[0]
        head: Content = None
        if first.title:
            above = tag("p", eyebrow, class_="eyebrow") if self.title != first.title else None
            also = tag("p", first.also, class_="also") if first.also else None
            head = tag("div", above, tag("h1", first.title), also, class_="masthead")
        body = [head, [_section(section, index == 0) for index, section in enumerate(sections)]]
        return self._filled(joined(body), name, file, scripts)

    def _filled(self, body: Markup, name: str, file: str, scripts: Sequence[str]) -> str:
        inside = [asset(script) for script in ("site.js", *scripts)]
        hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in inside)
        digests = " ".join(f"'sha256-{each}'" for each in hashes)
        policy = f"default-src 'none'; script-src {digests} 'self' file:; style-src 'unsafe-inline'; img-src data:"
        called = " · ".join(dict.fromkeys(filter(None, (name, self.title, "stagebench"))))
        links = [Link(self.home, "All runs")] * bool(self.home) + list(self.links)
        here = {file: "page"}
        menu = [tag("a", link.title, href=link.address, aria_current=here.get(link.address)) for link in links]
        atom = {"rel": "alternate", "type": "application/atom+xml", "title": self.title, "href": self.feed}
        feed = f"{tag('link', **atom)}\n" if self.feed else ""
        head = (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f'<meta name="generator" content="stagebench {__version__}">\n'
            f"{tag('title', called)}\n{feed}<style>\n{style()}</style>\n</head>\n<body>\n"
        )
        brand = tag("a", LOGO, "stagebench", href=links[0].address if links else "#main", class_="brand")
        bar = tag("header", brand, tag("nav", menu, aria_label="Pages") if menu else None, class_="site")
        foot = tag("footer", self.footer or tag("p", f"stagebench {__version__}"))
        skip = tag("a", "Skip to the content", class_="skip", href="#main")
        text = joined([skip, bar, HATCH, tag("main", body, id="main"), foot])
        ends = "".join(f"<script>{each}</script>\n" for each in inside)
        ends += f'<script src="{FOLLOW}"></script>\n' if self.served else ""
        return f"{head}{without_homes(str(text))}\n{ends}</body>\n</html>\n"


def _section(section: Section, first: bool) -> Markup:
    if first:  # its title is the page's, so that its panels' are the next level
        return tag("section", below_title(section.body), id=section.id)
    also = tag("p", section.also, class_="sub") if section.also else None
    return tag("section", tag("h2", section.title) if section.title else None, also, section.body, id=section.id)


def made(directory: Path) -> Path:
    """Return the folder, which is there now; StoreError when the disk refuses."""
    with disk(f"cannot make the folder {directory}", "name another one with -o"):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


@cache
def style() -> str:
    return asset("charts.css") + asset("site.css")


@cache
def asset(name: str) -> str:
    return (resources.files("reports") / "static" / name).read_text()
