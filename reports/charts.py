"""The charts, as plotly's own JSON: plain dictionaries, drawn in the reader's browser.

A colour that begins with `--` is a variable of the page's style sheet, put in when the
chart is drawn, so that charts follow the light or dark scheme. Row names are annotations
above the bars: beside them they would leave no room on a phone.
"""

from html import escape
from typing import Any

import numpy as np

from reports.panels import Panel
from reports.text import number
from suite.budget import STAGES
from suite.stats import Interval, Values, outliers
from suite.summary import Row

Figure = dict[str, Any]

# Okabe & Ito (2008): told apart with any kind of colour vision. The same stage, the same colour, everywhere.
STAGE_COLOURS = dict(
    zip(STAGES, ("#56B4E9", "#CC79A7", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#9AA0A6"), strict=True)
)
STAGE_TITLES = {"communication": "exposed communication"}
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9AA0A6")
ROW_HEIGHT = 46  # pixels for a name and its bar


def speeds(panel: Panel, adapters: list[str]) -> Figure:
    """Global samples/s with 95 % intervals, a bar a case, coloured by adapter."""
    rates = [row.rate for row in panel.rows if row.rate is not None]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [rate.value for rate in rates],
        "y": _places(panel),
        "width": 0.42,
        "marker": {"color": [colour(adapters.index(row.case.adapter)) for row in panel.rows]},
        "error_x": {**whiskers(rates), "color": "--ink", "width": 4},
        "hovertemplate": "%{customdata}<extra></extra>",
        "customdata": [
            f"{escape(name)}<br>{number(rate.value)} samples/s ({number(rate.low)} … {number(rate.high)})"
            for name, rate in zip(panel.names, rates, strict=True)
        ],
    }
    return _rows_figure(panel, [bars], "samples/s, all ranks together", [number(rate.value) for rate in rates])


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
        title = STAGE_TITLES.get(stage, stage)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": title,
                "x": values,
                "y": _places(shown),
                "width": 0.42,
                "marker": {"color": STAGE_COLOURS[stage], "line": {"color": "--page", "width": 0.5}},
                "hovertemplate": f"{title}: %{{x:.3g}} ms<extra></extra>",
            }
        )
    figure = _rows_figure(shown, traces, "ms per iteration", [f"{number(one.native * 1000)} ms" for one in budgets])
    figure["layout"]["barmode"] = "relative"
    return figure


def step_times(panel: Panel) -> Figure:
    """Box plots of every native step (quartiles; whiskers to the last step that is no outlier), outliers as dots."""
    boxes, dots_x, dots_y = [], [], []
    for place, row in zip(_places(panel), panel.rows, strict=True):
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
        "y": _places(panel),
        "lowerfence": low,
        "q1": first,
        "median": middle,
        "q3": third,
        "upperfence": high,
        "width": 0.42,
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
    return _rows_figure(panel, [box, dots], "ms per step, slowest rank", medians)


def quantiles(values: Values, percentages: tuple[int, ...]) -> list[float]:
    """Percentiles as plain numbers."""
    return [float(value) for value in np.percentile(values, percentages)]


def whiskers(rates: list[Interval]) -> Figure:
    """Error bars from the value to the ends of its interval."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [rate.high - rate.value for rate in rates],
        "arrayminus": [rate.value - rate.low for rate in rates],
        "thickness": 1.5,
    }


def all_steps(row: Row) -> Values:
    """Every native step of every process of a row, in seconds."""
    return np.concatenate([process.step_seconds for process in row.measured])


def colour(index: int) -> str:
    """The colour of a series or an adapter, by its place."""
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def _places(panel: Panel) -> list[int]:
    return [-index for index in range(len(panel.rows))]


def _rows_figure(panel: Panel, traces: list[Figure], unit: str, values: list[str]) -> Figure:
    """One row a case: its name above at the left, its number above at the right."""
    frame = layout(len(panel.rows) * ROW_HEIGHT + 58)
    frame["xaxis"] |= axis(unit) | {"rangemode": "tozero"}
    frame["yaxis"] = {"visible": False, "range": [-len(panel.rows) + 0.6, 0.75], "fixedrange": True}
    frame["annotations"] = [
        {
            "xref": "paper",
            "x": x,
            "xanchor": anchor,
            "yref": "y",
            "y": place + 0.42,
            "text": text,
            "showarrow": False,
            "bgcolor": "--page",
            "borderpad": 0,
        }
        for place, name, value in zip(_places(panel), panel.names, values, strict=True)
        for x, anchor, text in ((0, "left", escape(name)), (1, "right", f"<b>{value}</b>"))
    ]
    return {"data": traces, "layout": frame}


def axis(title: str) -> Figure:
    """A titled axis that does not zoom."""
    return {
        "title": {"text": title, "standoff": 6},
        "gridcolor": "--line",
        "zerolinecolor": "--muted",
        "fixedrange": True,
    }


def layout(height: int) -> Figure:
    """What all charts share."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 42},
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "--ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "xaxis": {"gridcolor": "--line", "zerolinecolor": "--muted", "fixedrange": True},
        "hoverlabel": {"align": "left"},
    }
