"""The charts that have one row a case: speeds, stages, step times."""

from dataclasses import replace
from itertools import compress

import numpy as np

from reports.bars import bars
from reports.figure import Figure, colour, places, rows_figure
from reports.panels import Panel
from reports.text import UNKNOWN, number
from suite.analysis.budget import STAGES, Budget
from suite.analysis.rows import Row
from suite.analysis.stats import Values, outliers

# Okabe & Ito (2008) again. The same stage, the same colour, everywhere.
STAGE_COLOURS = dict(
    zip(STAGES, ("#56B4E9", "#CC79A7", "#0072B2", "#E69F00", "#F0E442", "#D55E00", "#009E73", "#9AA0A6"), strict=True)
)
STAGE_TITLES = {"communication": "exposed communication"}
EXCHANGE_COLOURS = {"exposed": STAGE_COLOURS["communication"], "hidden": "#56B4E9"}


def speeds(panel: Panel, adapters: list[str]) -> Figure:
    """Global samples/s with 95 % intervals, a bar a case, coloured by adapter."""
    rates = [row.rate for row in panel.rows if row.rate is not None]
    shades = [colour(adapters.index(row.case.adapter)) for row in panel.rows]
    return bars(panel, rates, shades, "samples/s, all devices together")


def stages(panel: Panel) -> Figure | None:
    """The closed budget, stacked: milliseconds per iteration; None when no row has one."""
    shown = _only(panel, [row.budget is not None for row in panel.rows])
    budgets = [row.budget for row in shown.rows if row.budget]
    parts = {stage: [getattr(budget, stage) for budget in budgets] for stage in STAGES}
    if not any(parts["bubble"]):
        del parts["bubble"]  # nobody holds a network in parts
    titled = {STAGE_TITLES.get(stage, stage): (STAGE_COLOURS[stage], each) for stage, each in parts.items()}
    return _stacked(shown, titled, [f"{number(one.native * 1000)} ms" for one in budgets]) if budgets else None


def aggregation(panel: Panel) -> Figure | None:
    """What exchanging gradients adds to an iteration, and what computing hides; None when nothing is exchanged.

    What is hidden is left out where its share of the exchange is not determined.
    """
    shown = _only(panel, [row.budget is not None and row.several_devices for row in panel.rows])
    budgets = [row.budget for row in shown.rows if row.budget]
    exposed = [budget.communication for budget in budgets]
    determined = [budget.hidden_of(budget.comm_only) is not None for budget in budgets]
    hidden = [budget.hidden if known else None for budget, known in zip(budgets, determined, strict=True)]
    titled = dict(zip(EXCHANGE_COLOURS, zip(EXCHANGE_COLOURS.values(), (exposed, hidden), strict=True), strict=True))
    labels = [_exchanged(budget, known) for budget, known in zip(budgets, determined, strict=True)]
    return _stacked(shown, titled, labels) if budgets else None


def _exchanged(budget: Budget, determined: bool) -> str:
    if budget.communication is None:
        return UNKNOWN
    exposed = f"{number(budget.communication * 1000)} ms"
    return exposed if determined or budget.hidden is None else f"{exposed} + ?"


def _only(panel: Panel, kept: list[bool]) -> Panel:
    return replace(panel, rows=[*compress(panel.rows, kept)], names=[*compress(panel.names, kept)])


def _stacked(panel: Panel, parts: dict[str, tuple[str, list[float | None]]], labels: list[str]) -> Figure:
    """A bar a row: by title the colour and the seconds of each part; what is below zero stands at the left."""
    traces: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": title,
            "x": [(seconds or 0.0) * 1000 for seconds in values],
            "y": places(panel),
            "width": 0.0,
            "marker": {"color": shade, "line": {"color": "--page", "width": 0.5}},
            "hovertemplate": f"{title}: %{{x:.3g}} ms<extra></extra>",
        }
        for title, (shade, values) in parts.items()
    ]
    figure = rows_figure(panel, traces, "ms per iteration", labels)
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
