"""The page: one self-contained HTML file, tables readable without JavaScript, nothing fetched from anywhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from reports.context import context
from reports.figure import Figure
from reports.text import FILTERS
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.errors import StoreError
from suite.files import write_whole
from suite.results.run_folder import RunFolder

BEST = "best.toml"  # beside the page, where a run has compared configurations


def write(folder: RunFolder, directory: Path) -> Path:
    """Summarise the run and write `directory`/index.html; StoreError when something cannot be read or written."""
    found = context(folder, summarise(folder))
    text = _filled(found)
    if found["best_plan"]:
        made(directory)
        write_whole(directory / BEST, found["best_plan"])
    return saved(text, directory)


def saved(text: str, directory: Path) -> Path:
    """Write a page into a folder, made when needed; StoreError when the disk refuses."""
    page = made(directory) / "index.html"
    write_whole(page, text)
    return page


def made(directory: Path) -> Path:
    """The folder, which is there now."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {directory}: {error.strerror}; name another one with -o") from error
    return directory


def render(folder: RunFolder, rows: list[Row]) -> str:
    """The whole page as text."""
    return _filled(context(folder, rows))


def _filled(found: dict[str, Any]) -> str:
    return filled("page.html.jinja", best_file=BEST, **found)


def filled(template: str, **found: Any) -> str:
    """A template with its names, and with style, scripts and plotly in it."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(FILTERS)
    environment.filters["figure"] = figure_json
    plain: Callable[[str], str] = lambda name: (Path(__file__).parent / "templates" / name).read_text()  # noqa: E731
    return environment.get_template(template).render(
        **found, style=plain("page.css"), script=plain("charts.js"), plotly=get_plotlyjs()
    )


def figure_json(figure: Figure) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(figure, separators=(",", ":")).replace("<", "\\u003c")
