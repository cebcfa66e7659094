"""The charts that have one row a case: speeds, stages, step times."""

import numpy as np

from reports.bars import bars
from reports.figure import Figure, colour, places, rows_figure
from reports.panels import Panel
from reports.text import number
from suite.analysis.budget import STAGES
from suite.analysis.rows import Row
from suite.analysis.stats import Values, outliers

# Okabe & Ito (2008) again. The same stage, the same colour, everywhere.
STAGE_COLOURS = dict(
    zip(STAGES, ("#56B4E9", "#CC79A7", "#0072B2", "#E69F00", "#F0E442", "#D55E00", "#009E73", "#9AA0A6"), strict=True)
)
STAGE_TITLES = {"communication": "exposed communication"}


def speeds(panel: Panel, adapters: list[str]) -> Figure:
    """Global samples/s with 95 % intervals, a bar a case, coloured by adapter."""
    rates = [row.rate for row in panel.rows if row.rate is not None]
    shades = [colour(adapters.index(row.case.adapter)) for row in panel.rows]
    return bars(panel, rates, shades, "samples/s, all devices together")


def stages(panel: Panel) -> Figure | None:
    """The closed budget, stacked: milliseconds per iteration; None when no row has one."""
    rows = [(row, name) for row, name in zip(panel.rows, panel.names, strict=True) if row.budget]
    if not rows:
        return None
    shown = Panel(panel.title, [row for row, _ in rows], [name for _, name in rows], panel.common)
    budgets = [row.budget for row in shown.rows if row.budget]
    traces = []
    for stage in STAGES:
        values = [(getattr(budget, stage) or 0.0) * 1000 for budget in budgets]
        if stage == "bubble" and not any(values):
            continue  # nobody holds a network in parts
        title = STAGE_TITLES.get(stage, stage)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": title,
                "x": values,
                "y": places(shown),
                "width": 0.0,
                "marker": {"color": STAGE_COLOURS[stage], "line": {"color": "--page", "width": 0.5}},
                "hovertemplate": f"{title}: %{{x:.3g}} ms<extra></extra>",
            }
        )
    figure = rows_figure(shown, traces, "ms per iteration", [f"{number(one.native * 1000)} ms" for one in budgets])
    figure["layout"]["barmode"] = "relative"
    return figure


def step_times(panel: Panel) -> Figure:
    """Box plots of every native step (quartiles; whiskers to the last step that is no outlier), outliers as dots."""
    boxes, dots_x, dots_y = [], [], []
    for place, row in zip(places(panel), panel.rows, strict=True):
        values = all_steps(row) * 1000
        far = outliers(values)
        dots_x += [round(float(value), 4) for value in values[far]]
        dots_y += [place] * int(far.sum())
        near = values[~far]
        boxes.append([float(near.min()), *quantiles(values, (25, 50, 75)), float(near.max())])
    low, first, middle, third, high = (list(column) for column in zip(*boxes, strict=True))
    box: Figure = {
        "type": "box",
        "orientation": "h",
        "y": places(panel),
        "lowerfence": low,
        "q1": first,
        "median": middle,
        "q3": third,
        "upperfence": high,
        "width": 0.0,
        "line": {"color": "#0072B2", "width": 1.5},
        "fillcolor": "rgba(86,180,233,0.35)",
        "hoverinfo": "x",
    }
    dots: Figure = {
        "type": "scatter",
        "mode": "markers",
        "x": dots_x,
        "y": dots_y,
        "marker": {"color": "#D55E00", "size": 6, "opacity": 0.6},
        "hovertemplate": "outlier: %{x:.3g} ms<extra></extra>",
    }
    medians = [f"median {number(value)} ms" for value in middle]
    return rows_figure(panel, [box, dots], "ms per step, slowest rank", medians)


def quantiles(values: Values, percentages: tuple[int, ...]) -> list[float]:
    return [float(value) for value in np.percentile(values, percentages)]


def all_steps(row: Row) -> Values:
    """Every native step of every process of a row, in seconds."""
    return np.concatenate([process.step_seconds for process in row.measured])
