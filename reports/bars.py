"""Horizontal bars, one a case, with their intervals and, beside them, a second value of the same kind."""

from collections.abc import Sequence
from html import escape

from reports.figure import Figure, from_zero, places, rows_figure, whiskers
from reports.panels import Panel
from reports.text import bracketed, number
from suite.analysis.stats import Interval


def bars(
    panel: Panel,
    values: Sequence[Interval],
    shades: Sequence[str],
    unit: str,
    beside: Sequence[float | None] | None = None,
    second: str = "",
) -> Figure:
    """A bar for each of the panel's rows; `beside` is drawn as a diamond, `second` says what it is."""
    spread = any(one.scatters for one in values)
    what = unit.partition(",")[0]
    traces: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [one.value for one in values],
            "y": places(panel),
            "width": 0.0,
            "marker": {"color": list(shades)},
            **({"error_x": {**whiskers(list(values)), "color": "--ink", "width": 4}} if spread else {}),
            "hovertemplate": "%{customdata}<extra></extra>",
            "customdata": [
                f"{escape(name)}<br>{number(one.value)} {what}{bracketed(one)}"
                for name, one in zip(panel.names, values, strict=True)
            ],
        }
    ]
    if beside is not None:
        traces.append(_diamonds(panel, beside, second))
    figure = rows_figure(panel, traces, unit, [number(one.value) for one in values])
    if spread and not beside:
        figure["layout"]["xaxis"] |= from_zero(values)
    return figure


def _diamonds(panel: Panel, beside: Sequence[float | None], second: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(beside),
        "y": places(panel),
        "marker": {"symbol": "diamond", "size": 9, "color": "--page", "line": {"color": "--ink", "width": 1.5}},
        "hovertemplate": f"{escape(second)}: %{{x:.4g}}<extra></extra>",
    }
