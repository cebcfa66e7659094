"""How a page is made: sections from templates, a frame around them, and what all pages share."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from reports.figure import Figure
from reports.text import FILTERS
from suite import __version__
from suite.files import disk, write_whole
from suite.worker.homes import without_homes

ASSETS = ("site.css", "site.js", "charts.js", "case_table.js", "case.js", "model.js", "what_if.js")
HEADING = re.compile(r'<section id="([\w-]+)">\s*<h2>(.*?)</h2>')


@dataclass(frozen=True)
class Link:
    """An entry of a menu."""

    address: str
    title: str


@dataclass(frozen=True)
class Frame:
    """What the pages of one run have in common.

    `root` leads from them to the folder that holds `assets`, `home` to the page about all runs, `feed` to their feed.
    """

    title: str
    links: tuple[Link, ...] = ()
    root: str = ""
    home: str = ""
    feed: str = ""

    def page(self, body: str, name: str = "", file: str = "", scripts: tuple[str, ...] = ()) -> str:
        """A page that takes style and scripts from `assets`; plotly only where it has a chart."""
        charts = 'class="chart"' in body
        scripts = ("site.js", *(("plotly.min.js", "charts.js") if charts else ()), *scripts)
        return self._filled(body, name=name, file=file, scripts=scripts, inside={})

    def single(self, body: str, name: str = "") -> str:
        """A page that is complete in itself."""
        inside = {name: asset(name) for name in ("site.css", "site.js", "charts.js")}
        return self._filled(body, name=name, file="", scripts=(), inside={**inside, "plotly.min.js": get_plotlyjs()})

    def _filled(self, body: str, **more: Any) -> str:
        body = without_homes(body)
        sections = [Link(f"#{id_}", heading) for id_, heading in HEADING.findall(body)]
        base = _environment().get_template("base.html.jinja")
        return base.render(frame=self, body=body, sections=sections, version=__version__, **more)


def rendered(names: Iterable[str], found: Mapping[str, Any]) -> dict[str, str]:
    """The templates of these names, filled; "" of one that has nothing to show."""
    environment = _environment()
    ui = environment.get_template("macros.html.jinja").make_module(dict(found))
    templates = {name: environment.get_template(f"{name}.html.jinja") for name in names}
    return {name: template.render(found, ui=ui, version=__version__).strip() for name, template in templates.items()}


def write_assets(directory: Path) -> None:
    """Style and scripts of all pages, into the folder `assets`."""
    folder = made(directory / "assets")
    for name in ASSETS:
        write_whole(folder / name, asset(name))
    write_whole(folder / "plotly.min.js", get_plotlyjs())


def made(directory: Path) -> Path:
    """The folder, which is there now; StoreError when the disk refuses."""
    with disk(f"cannot make the folder {directory}", "name another one with -o"):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def script_json(content: object) -> str:
    """Compact JSON that may stand inside a script element."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    return (resources.files("reports") / "static" / name).read_text()


@cache  # it keeps the templates that it has compiled
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(FILTERS)
    environment.filters["figure"] = figure_json
    return environment


def figure_json(figure: Figure) -> str:
    return script_json(figure)
