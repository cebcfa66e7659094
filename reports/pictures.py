"""Every chart of a run as a picture, SVG and PNG, in the colours of the light scheme: for papers and slides."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from reports import comm, site
from reports.figure import Figure
from reports.frame import asset, made
from suite.analysis.summary import summarise
from suite.errors import RequestError
from suite.results.run_folder import RunFolder

WIDTH, SCALE = 900, 2  # CSS pixels; pixels of a PNG for each
PARTS = re.compile(
    r'<section id="(?P<section>[\w-]+)">|<h3>(?P<title>[^<]*)'
    r'|<script type="application/json">(?P<figure>.*?)</script>\s*<div class="chart"'
)


def charts_of(page: str) -> Iterator[tuple[str, Figure]]:
    """Every chart that a page draws, named by its section and its heading."""
    section, title = "overview", ""
    seen: dict[str, int] = {}
    for found in PARTS.finditer(page):
        if found["section"]:
            section, title = found["section"], ""
        elif found["figure"] is None:
            title = unescape(found["title"]).strip()
        else:
            name = re.sub(r"[^\w.-]+", "-", "-".join(filter(None, (section, title)))).strip("-")
            seen[name] = seen.get(name, 0) + 1
            yield name if seen[name] == 1 else f"{name}-{seen[name]}", json.loads(found["figure"])


def as_charts(folder: RunFolder, directory: Path) -> None:
    """NAME.svg and .png of every chart; RequestError without kaleido, or without the browser that it draws with."""
    try:
        import kaleido
    except ImportError:
        raise RequestError("pictures need kaleido: pip install 'stagebench[charts]'") from None
    page = comm.render(folder) if folder.about.of_comm else site.render(folder, summarise(folder))
    shades = _light()
    tasks = [
        {
            "fig": _themed(_on_paper(figure), shades),
            "path": str(made(directory) / f"{name}.{format_}"),
            "opts": {"format": format_, "width": WIDTH, "height": figure["layout"]["height"], "scale": scale},
        }
        for name, figure in charts_of(page)
        for format_, scale in (("svg", 1), ("png", SCALE))
    ]
    try:
        kaleido.write_fig_from_object_sync(tasks)
    except Exception as error:  # of the browser, whatever it was
        raise RequestError(f"kaleido could not draw ({error}); it needs Chrome or Chromium on PATH") from error


def _on_paper(figure: Figure) -> Figure:
    return {**figure, "layout": {**figure["layout"], "paper_bgcolor": "--page"}}


def _light() -> dict[str, str]:
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", asset("site.css").partition("}")[0]))


def _themed(value: Any, shades: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _themed(each, shades) for name, each in value.items()}
    if isinstance(value, list):
        return [_themed(each, shades) for each in value]
    return shades.get(value, value) if isinstance(value, str) else value
