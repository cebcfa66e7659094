"""Charts of lines: learning curves, losses by samples, trade-offs."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from reports.figure import SERIES_COLOURS, Figure, axis, colour, layout, wrapped
from suite.analysis.stats import Spread

# Seven beside ten colours: the two together come again after seventy series.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "cross")
DASHES = ("solid", "dash", "dot", "dashdot")  # of lines without symbols, where colours come again
LEGEND_ROW = 20  # pixels
LEGEND_WRAP = 32  # characters of a name that fit beside its line on a phone
POINTS = 300  # of a curve: the eye tells no more apart

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """One series; `low` and `high` are the ends of each point's spread."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()

    @classmethod
    def of(cls, name: str, x: Sequence[float], found: Sequence[Spread | None]) -> "Line":
        """Medians with what they spread over; a gap where nothing was found."""
        ends = [(one.value, one.low, one.high) if one else (None, None, None) for one in found]
        return cls(name, x, *zip(*ends, strict=True))


def lines_figure(lines: Sequence[Line], across: str, up: str, mode: str = "lines", log: bool = False) -> Figure:
    """All lines on the same axes; `log`: a logarithmic abscissa with a tick at every value."""
    called = [wrapped(line.name, LEGEND_WRAP) for line in lines]
    frame = with_legend(called)
    frame |= {"xaxis": axis(across), "yaxis": axis(up)}
    if log:
        values = sorted({value for line in lines for value in line.x})
        frame["xaxis"] |= {"type": "log", "tickvals": values, "ticktext": [f"{value:g}" for value in values]}
    named = zip(lines, called, strict=True)
    return {"data": [_trace(index, *each, across, mode) for index, each in enumerate(named)], "layout": frame}


def thinned(points: Sequence[T]) -> list[T]:
    """Every n-th point of a long curve, POINTS at most, the last one among them."""
    every = -(-len(points) // POINTS) or 1
    return list(points[::-1][::every][::-1])


def from_zero_up(figure: Figure) -> Figure:
    """The same with an ordinate that begins at zero, as a quantity's does that is read by its height."""
    figure["layout"]["yaxis"]["rangemode"] = "tozero"
    return figure


def with_legend(called: Sequence[str]) -> Figure:
    """A layout whose legend of these names, wrapped, stands under the axis and its title."""
    lines = sum(1 + name.count("<br>") for name in called)
    frame = layout(320 + LEGEND_ROW * lines)
    frame["margin"] = {"l": 60, "r": 16, "t": 12, "b": 42 + LEGEND_ROW * lines}
    return frame | {"showlegend": True, "legend": legend(lines)}


def legend(lines: int) -> Figure:
    """Under an axis and its title, as long as it is: plotly would let it scroll beyond half of the chart."""
    # Places are shares of what the margins leave.
    place = {"orientation": "v", "y": -46 / 266, "yanchor": "top", "x": 0}
    return place | {"maxheight": LEGEND_ROW * (lines + 1)}


def _trace(index: int, line: Line, called: str, across: str, mode: str) -> Figure:
    trace: Figure = {
        "type": "scatter",
        "mode": mode,
        "name": called,
        "x": list(line.x),
        "y": list(line.y),
        "line": {"color": colour(index), "width": 1.5, "dash": DASHES[index // len(SERIES_COLOURS) % len(DASHES)]},
        "marker": {"size": 7, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        "hovertemplate": f"{escape(line.name)}<br>{across} %{{x:.4g}}: %{{y:.4g}}<extra></extra>",
    }
    if line.low:
        ends = list(zip(line.y, line.low, line.high, strict=True))
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [None if y is None or high is None else high - y for y, _, high in ends],
            "arrayminus": [None if y is None or low is None else y - low for y, low, _ in ends],
            "thickness": 1.2,
        }
    return trace
