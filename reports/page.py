"""The page: one self-contained HTML file, tables readable without JavaScript, nothing fetched from anywhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from reports import charts, facts
from reports.figure import Figure, colour
from reports.learning import lessons_of
from reports.panels import Panel, by_network, for_charts
from reports.scaling import scaling
from reports.text import FILTERS
from suite import __version__
from suite.analysis.measured import DISQUALIFYING, NOTED
from suite.analysis.rows import Row
from suite.analysis.stats import outliers
from suite.analysis.summary import left_out, summarise
from suite.errors import StoreError
from suite.store import RunFolder, write_whole

Chart = tuple[Panel, Figure]


def write(folder: RunFolder, directory: Path) -> Path:
    """Summarise the run and write `directory`/index.html; StoreError when something cannot be read or written."""
    text = render(folder, summarise(folder))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {directory}: {error.strerror}; name another one with -o") from error
    page = directory / "index.html"
    write_whole(page, text)
    return page


def render(folder: RunFolder, rows: list[Row]) -> str:
    """The whole page as text."""
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
    return environment.get_template("page.html.jinja").render(
        **_context(folder, rows), style=plain("page.css"), script=plain("charts.js"), plotly=get_plotlyjs()
    )


def figure_json(figure: Figure) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(figure, separators=(",", ":")).replace("<", "\\u003c")


def _context(folder: RunFolder, rows: list[Row]) -> dict[str, Any]:
    panels = for_charts(rows)
    adapters = list(dict.fromkeys(row.case.adapter for row in rows))
    return {
        "about": folder.about,
        "version": __version__,
        "plan": facts.plan_of(folder),
        "hosts": folder.hosts(),
        "software": facts.software_of(rows),
        "left_out": left_out(folder),
        "progress": facts.progress_of(rows),
        "findings": facts.findings(rows),
        "rows": rows,
        "tables": by_network(rows),
        "speed_charts": _drawn(panels, lambda panel: charts.speeds(panel, adapters)),
        "stage_charts": _drawn(panels, charts.stages),
        "scaling_charts": _drawn(panels, scaling),
        "step_charts": _drawn(panels, charts.step_times),
        "stage_colours": {charts.STAGE_TITLES.get(k, k): shade for k, shade in charts.STAGE_COLOURS.items()},
        "adapter_colours": {adapter: colour(index) for index, adapter in enumerate(adapters)},
        "step_facts": step_facts,
        "lessons": lessons_of(rows),
        "disqualifying": DISQUALIFYING,
        "noted": NOTED,
    }


def _drawn(panels: list[Panel], draw: Callable[[Panel], Figure | None]) -> list[Chart]:
    drawn = [(panel, draw(panel)) for panel in panels]
    return [(panel, figure) for panel, figure in drawn if figure is not None]


def step_facts(row: Row) -> dict[str, float]:
    """The distribution of a row's native steps in numbers: seconds, and how many there are."""
    steps = charts.all_steps(row)
    low, middle, high = charts.quantiles(steps, (5, 50, 95))
    found = {"least": float(steps.min()), "p5": low, "median": middle, "p95": high, "most": float(steps.max())}
    return {**found, "steps": steps.size, "outliers": int(outliers(steps).sum())}
