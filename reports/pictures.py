"""Every chart of a run as a picture, SVG and PNG, in the colours of the light scheme: for papers and slides."""

import re
from pathlib import Path
from typing import Any

from reports.context import context
from reports.figure import Figure
from reports.frame import asset, made
from reports.panels import Panel
from suite.analysis.summary import summarise
from suite.errors import RequestError
from suite.results.run_folder import RunFolder

KINDS = ("speed", "stage", "scaling", "step")
WIDTH, SCALE = 900, 2  # CSS pixels; pixels of a PNG for each


def as_charts(folder: RunFolder, directory: Path) -> None:
    """KIND-NETWORK.svg and .png; RequestError without kaleido, or without the browser that it draws with."""
    try:
        import kaleido
    except ImportError:
        raise RequestError("pictures need kaleido: pip install 'stagebench[charts]'") from None
    found, shades = context(folder, summarise(folder)), _light()
    drawn = {} if found["first_chart"] is None else {"overview": found["first_chart"]}
    charts: list[tuple[str, Panel, Figure]] = [(kind, *chart) for kind in KINDS for chart in found[f"{kind}_charts"]]
    drawn |= {re.sub(r"[^\w.-]+", "-", f"{kind}-{panel.title}"): figure for kind, panel, figure in charts}
    tasks = [
        {
            "fig": _themed(figure, shades),
            "path": str(made(directory) / f"{name}.{format_}"),
            "opts": {"format": format_, "width": WIDTH, "height": figure["layout"]["height"], "scale": scale},
        }
        for name, figure in drawn.items()
        for format_, scale in (("svg", 1), ("png", SCALE))
    ]
    try:
        kaleido.write_fig_from_object_sync(tasks)
    except Exception as error:  # of the browser, whatever it was
        raise RequestError(f"kaleido could not draw ({error}); it needs Chrome or Chromium on PATH") from error


def _light() -> dict[str, str]:
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", asset("site.css").partition("}")[0]))


def _themed(value: Any, shades: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _themed(each, shades) for name, each in value.items()}
    if isinstance(value, list):
        return [_themed(each, shades) for each in value]
    return shades.get(value, value) if isinstance(value, str) else value
