"""The charts of a link: time and bus bandwidth over size, both axes logarithmic, and the fit where it is determined."""

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from reports.figure import Figure, axis, colour, layout
from reports.lines import LEGEND_ROW, SYMBOLS, legend
from suite.analysis.links import Fit, Link, Point, written
from suite.contracts.case import OPERATIONS

CURVE = 60  # points of a fitted line
TICKS = tuple(4**power for power in range(1, 17))


def times(found: Sequence[Link]) -> Figure:
    """Microseconds: medians with the 5th and 95th percentile, and the fit."""
    return _figure(
        found,
        "µs",
        lambda point: [seconds * 1e6 for seconds in (point.seconds, point.low, point.high) if seconds is not None],
        lambda fit, point, size: fit.seconds(size) * 1e6,
    )


def bandwidths(found: Sequence[Link]) -> Figure:
    """Bus bandwidth in MB/s, and what the fit makes of it."""
    return _figure(
        found,
        "bus bandwidth, MB/s",
        lambda point: [point.bus_bandwidth / 1e6] if point.bus_bandwidth is not None else [],
        lambda fit, point, size: size * point.factor / fit.seconds(size) / 1e6,
    )


def _figure(
    found: Sequence[Link],
    up: str,
    values: Callable[[Point], Sequence[float]],
    model: Callable[[Fit, Point, float], float],
) -> Figure:
    """`values` gives a point's figure, alone or with its lower and upper end; nothing if the point has no figure."""
    traces: list[Figure] = []
    for link in found:
        points, place = link.singles, OPERATIONS.index(link.collective.operation)
        drawn = [(point.bytes, values(point)) for point in points]
        traces.append(_measured(link.collective.operation + link.marked, [each for each in drawn if each[1]], place))
        if link.fit and link.fit.tells:
            sizes = _between(points[0].bytes, points[-1].bytes)
            fitted = [model(link.fit, points[0], size) for size in sizes]
            traces.append(_line(link.collective.operation, sizes, fitted, place))
    bytes_ = sorted({point.bytes for link in found for point in link.singles})
    ticks = [tick for tick in TICKS if bytes_[0] <= tick <= bytes_[-1]][::2]
    frame = layout(330 + LEGEND_ROW * len(found))
    across = {"type": "log", "tickvals": ticks, "ticktext": [written(tick) for tick in ticks]}
    frame |= {"xaxis": axis("message") | across, "yaxis": axis(up) | {"type": "log"}, "showlegend": True}
    frame |= {"legend": legend(len(found))}
    frame["margin"] = {"l": 60, "r": 16, "t": 12, "b": 48 + LEGEND_ROW * len(found)}
    return {"data": traces, "layout": frame}


def _measured(name: str, drawn: Sequence[tuple[int, Sequence[float]]], place: int) -> Figure:
    """Markers over the bytes; error bars if the values have ends."""
    trace: Figure = {
        "type": "scatter",
        "mode": "markers",
        "name": escape(name),
        "x": [size for size, _ in drawn],
        "y": [values[0] for _, values in drawn],
        "marker": {"size": 7, "symbol": SYMBOLS[place % len(SYMBOLS)], "color": colour(place)},
        "text": [written(size) for size, _ in drawn],
        "hovertemplate": f"{escape(name)}<br>%{{text}}: %{{y:.4g}}<extra></extra>",
    }
    if any(len(values) > 1 for _, values in drawn):
        above, below = [values[2] - values[0] for _, values in drawn], [values[0] - values[1] for _, values in drawn]
        trace["error_y"] = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1}
    return trace


def _line(name: str, sizes: Sequence[float], values: Sequence[float], place: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{escape(name)}, fitted",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": list(sizes),
        "y": list(values),
        "line": {"color": colour(place), "width": 1.2, "dash": "dot"},
    }


def _between(low: float, high: float) -> list[float]:
    step = (log10(high) - log10(low)) / (CURVE - 1)
    return [10 ** (log10(low) + step * index) for index in range(CURVE)]
