"""Runs beside each other: the latest two that share a case, as `compare` has it, and every case as `history` has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from reports.figure import Figure, axis, colour, layout, whiskers
from suite.analysis.compare_runs import Compared, Comparison, compare, paired
from suite.analysis.runs import MeasuredRun, Series, series_of

THRESHOLD = 0.03  # as the commands have it: smaller changes do not matter
DRAWN = 60  # series; the table has all


@dataclass(frozen=True)
class Past:
    """A case over runs; `what` says of each change how large it is, from when on, and what else changed."""

    series: Series
    figure: Figure
    what: list[str]


def beside_each_other(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Every name that the template knows; empty where no two runs share a case with a speed."""
    different = {run.key: run for run in runs if run.measured}.values()
    ordered = sorted(different, key=lambda run: run.about.created)
    series = [each for each in series_of(ordered, THRESHOLD) if len(each.points) > 1]
    series.sort(key=lambda each: not each.changes)
    found = _latest(ordered)
    if found is None and not series:
        return {}
    pasts = [Past(each, _figure(each), _changes(each)) for each in series]
    return {"found": found, "single": _single(found) if found else [], "pasts": pasts, "drawn": DRAWN}


def _latest(ordered: Sequence[MeasuredRun]) -> Comparison | None:
    """The latest run against the last one before it that shares a case, of the same plan if there is one."""
    if not ordered:
        return None
    *earlier, after = ordered
    for at in sorted(
        range(len(earlier)), key=lambda at: (earlier[at].about.plan == after.about.plan, at), reverse=True
    ):
        if any(one and other for one, other in paired(earlier[at], after)):
            return compare(earlier[at], after, THRESHOLD, earlier[:at])
    return None


def _single(found: Comparison) -> list[tuple[str, list[Compared]]]:
    """By the name of each run the cases that it alone has measured."""
    before = [one for one in found.cases if one.after is None]
    after = [one for one in found.cases if one.before is None]
    return [(run.name, cases) for run, cases in ((found.before, before), (found.after, after)) if cases]


def _changes(series: Series) -> list[str]:
    return [
        f"{change.ratio - 1:+.1%} from {series.points[change.at].run.about.created[:10]} on; changed there: "
        f"{'; '.join(change.differs) or 'nothing that the runs keep'}"
        for change in series.changes
    ]


def _figure(series: Series) -> Figure:
    rates = [point.row.rate for point in series.points if point.row.rate]
    dates = [point.run.about.created for point in series.points]
    frame = layout(220)
    frame["xaxis"] = axis("") | {"type": "date", "nticks": 4, "tickangle": 0}  # dates fit a phone
    if len(set(dates)) == 1:  # of which the library makes an axis of milliseconds
        frame["xaxis"] |= {"tickvals": dates[:1], "ticktext": [dates[0][:10]]}
    frame["yaxis"] = axis("samples/s") | {"rangemode": "tozero"}
    frame["margin"] = {"l": 60, "r": 16, "t": 12, "b": 32}
    frame["shapes"] = [
        {"type": "line", "x0": dates[change.at], "x1": dates[change.at], "yref": "paper", "y0": 0, "y1": 1}
        | {"line": {"color": "--bad", "width": 1, "dash": "dot"}}
        for change in series.changes
    ]
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": dates,
        "y": [rate.value for rate in rates],
        "error_y": whiskers(rates),
        "line": {"color": colour(0), "width": 1.5},
        "text": [escape(point.run.path.name) for point in series.points],
        "hovertemplate": "%{text}<br>%{y:.4g} samples/s<extra></extra>",
    }
    return {"data": [trace], "layout": frame}
