"""What all charts are made of, as plotly's own JSON: plain dictionaries, drawn in the reader's browser.

A colour that begins with `--` is a variable of the page's style sheet, put in when the
chart is drawn, so that charts follow the light or dark scheme. Row names are annotations
above the bars: beside them they would leave no room on a phone.
"""

from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any

from reports.panels import Panel
from suite.analysis.stats import Interval

Figure = dict[str, Any]
Chart = tuple[Panel, Figure]

# Okabe & Ito (2008), then two of Tol's "muted" (2021): told apart with any kind of colour vision. As many as there are
# adapters.
SERIES_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#9AA0A6", "#F0E442"),
    *("#AA4499", "#999933"),
)
BAR, LINE = 19, 16  # pixels: a bar, a line of its name
BEYOND = 1.6  # of the largest value: where an axis ends at the latest
WRAP = 44  # characters of a name that fit beside its number on a phone


def colour(index: int) -> str:
    """The colour of a series or an adapter, by its place."""
    return SERIES_COLOURS[index % len(SERIES_COLOURS)]


def places(panel: Panel) -> list[int]:
    """Where each row stands: 0, -1, ...: the first at the top."""
    return [-index for index in range(len(panel.rows))]


def rows_figure(panel: Panel, traces: list[Figure], unit: str, values: list[str]) -> Figure:
    """One row a case: its name above at the left, its number above at the right."""
    labels = [wrapped(name) for name in panel.names]
    lines = max(label.count("<br>") for label in labels) + 1
    row = BAR + LINE * lines + 9  # pixels
    for trace in traces:
        if "width" in trace:
            trace["width"] = BAR / row
    frame = layout(len(labels) * row + 50)
    frame["xaxis"] |= axis(unit) | {"rangemode": "tozero"}
    span = [1 - len(labels) - (BAR / 2 + 5) / row, (BAR / 2 + LINE * lines + 4) / row]
    frame["yaxis"] = {"visible": False, "range": span, "fixedrange": True}
    above = BAR / 2 / row
    frame["annotations"] = [
        {"xref": "paper", "x": x, "xanchor": anchor, "yref": "y", "y": place + above, "yanchor": "bottom"}
        | {"text": text, "align": anchor, "showarrow": False, "bgcolor": "--page", "borderpad": 0}
        for place, label, value in zip(places(panel), labels, values, strict=True)
        for x, anchor, text in ((0, "left", label), (1, "right", f"<b>{value}</b>"))
    ]
    return {"data": traces, "layout": frame}


def wrapped(name: str, longest: int = WRAP) -> str:
    """A name for a chart: on lines short enough for a phone, with nothing that plotly takes for markup."""
    lines = [""]
    for part in name.split(" · "):
        first, *rest = wrap(part, longest) or [""]
        longer = f"{lines[-1]} · {first}" if lines[-1] else first
        lines[-1:] = [longer] if len(longer) <= longest or not lines[-1] else [lines[-1], first]
        lines += rest
    return "<br>".join(escape(line) for line in lines)


def axis(title: str) -> Figure:
    """A titled axis that does not zoom."""
    return {
        "title": {"text": title, "standoff": 6},
        "gridcolor": "--line",
        "zerolinecolor": "--muted",
        "fixedrange": True,
    }


def from_zero(values: Sequence[Interval], others: Sequence[float] = ()) -> Figure:
    """An axis that begins at zero and holds `others`; an interval that knows nothing reaches beyond, and hides none."""
    top = max([BEYOND * one.value for one in values] + [*others], default=0.0)
    return {"range": [0, top]} if any(one.high > top for one in values) else {"rangemode": "tozero"}


def layout(height: int) -> Figure:
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


def whiskers(rates: list[Interval]) -> Figure:
    """Error bars from the value to the ends of its interval; none of a value without one."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [rate.high - rate.value if rate.scatters else None for rate in rates],
        "arrayminus": [rate.value - rate.low if rate.scatters else None for rate in rates],
        "thickness": 1.5,
    }
