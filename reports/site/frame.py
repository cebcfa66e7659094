"""The frame of all pages: everything that one needs is in it, and a policy lets nothing else in."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from stagebench.reports.charts.html import Content, below_title, joined, tag
from stagebench.reports.pages.run import Section
from stagebench.suite import __version__
from stagebench.suite.files import disk
from stagebench.suite.worker.homes import without_homes

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
            HATCH,
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


@cache
def asset(name: str) -> str:
    return (resources.files("stagebench.reports") / "static" / name).read_text()


def made(directory: Path) -> Path:
    """Return the folder, which is there now; StoreError when the disk refuses."""
    with disk(f"cannot make the folder {directory}", "name another one with -o"):
        directory.mkdir(parents=True, exist_ok=True)
    return directory
