"""The scaling chart: samples/s from one device to N, beside the ideal line and what the model predicts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reports.figure import Figure, axis, colour, from_zero, whiskers, wrapped
from reports.lines import LEGEND_WRAP, SYMBOLS, with_legend
from reports.names import names
from reports.panels import Panel
from reports.text import share
from suite.analysis.rows import Row
from suite.analysis.scaling import trainings
from suite.analysis.stats import Interval
from suite.contracts.case import Case, Placement
from suite.predict.prediction import Answer


def scaling(panel: Panel, adapters: Sequence[str], predicted: Sequence[Answer] = ()) -> Figure | None:
    """A line a series with its ideal and its prediction, where there is one; None when there is no baseline.

    A series is one strategy with its one-device baseline, within a node or over nodes with as many devices each, and
    with the same batch for every device or for all together; of networks in parts, it is one of their trainings. It has
    the colour of its adapter, one of `adapters`, where each has one series.
    """
    known = {row.id: row for row in panel.rows}
    in_parts = {row.id: number for number, group in enumerate(trainings(panel.rows)) for row in group}
    series: dict[tuple[str, str, int, str, int | None], list[Row]] = {}
    for row in panel.rows:
        if row.scaling and row.scaling.baseline_id in known:
            baseline = known[row.scaling.baseline_id]
            key = (baseline.id, row.case.strategy, of_a_node(row.case), row.case.scaling, in_parts.get(row.id))
            series.setdefault(key, [baseline]).append(row)
    if not series:
        return None
    called = names([_without_place(rows[-1].case) for rows in series.values()])
    titles = [
        wrapped(on_nodes(name, devices), LEGEND_WRAP) for name, (_, _, devices, *_) in zip(called, series, strict=True)
    ]
    places = [adapters.index(rows[-1].case.adapter) for rows in series.values()]
    if len({colour(place) for place in places}) < len(places):
        places = list(range(len(places)))
    traces = [
        trace
        for index, rows, title in zip(places, series.values(), titles, strict=True)
        for trace in (_ideal(index, rows), _line(index, rows, title), *_predicted(index, rows, title, predicted))
    ]
    devices = sorted({count for trace in traces for count in trace["x"]})
    frame = with_legend(titles)
    frame["xaxis"] = {**axis("devices"), "tickvals": devices, "range": [0.8, max(devices) + 0.2]}
    rates = [row.rate for rows in series.values() for row in rows if row.rate]
    lines = [y for trace in traces for y in trace["y"]]
    frame["yaxis"] = axis("samples/s, all devices together") | from_zero(rates, lines)
    return {"data": traces, "layout": frame}


def of_a_node(case: Case) -> int:
    """Devices on each of several nodes; 0 on one."""
    place = case.placement
    return place.devices_per_node if place.nodes > 1 else 0


def on_nodes(name: str, devices: int) -> str:
    """The name of a series, with the devices of each of its nodes; 0 for one node."""
    return f"{name} · {devices} device{'' if devices == 1 else 's'} per node" if devices else name


def _ideal(index: int, rows: list[Row]) -> Figure:
    devices, baseline = [row.case.placement.device_count for row in rows], rows[0].rate
    return {
        "type": "scatter",
        "mode": "lines",
        "x": devices,
        "y": [count * baseline.value for count in devices] if baseline else [],
        "line": {"color": colour(index), "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _line(index: int, rows: list[Row], title: str) -> Figure:
    rates = [row.rate for row in rows if row.rate]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [row.case.placement.device_count for row in rows],
        "y": [rate.value for rate in rates],
        "name": title,
        "line": {"color": colour(index)},
        "marker": {"size": 9, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        "error_y": whiskers(rates),
        "hovertemplate": f"{title}<br>%{{x}} devices: %{{y:.4g}} samples/s<extra></extra>",
    }


def _predicted(index: int, rows: list[Row], title: str, answers: Sequence[Answer]) -> Iterator[Figure]:
    """From the devices that the model was fitted to, to those that it predicts."""
    shown = {row.id for row in rows if row.several_devices}
    for answer in answers:
        if shown.isdisjoint(answer.asked.cases) or answer.asked.fitted_to is None or not answer.sizes:
            continue
        base = answer.asked.measured[answer.asked.fitted_to]
        rates = [base, *(Interval(one.rate, *one.rates, 1) for one in answer.predictions)]
        wrong = [answer.wrong(one) for one in answer.predictions]
        errors = [f"error {share(answer.error(one))}" for one in answer.predictions]
        labels = [f"{error}: the model is wrong" if bad else error for error, bad in zip(errors, wrong, strict=True)]
        yield {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [answer.asked.fitted_to, *(one.ranks for one in answer.predictions)],
            "y": [rate.value for rate in rates],
            "customdata": ["fitted to", *labels],
            "line": {"color": colour(index), "dash": "dash", "width": 1.5},
            "marker": {
                "size": 11,
                "symbol": "diamond-open",
                "color": [colour(index), *("--bad" if bad else colour(index) for bad in wrong)],
            },
            "error_y": whiskers(rates),
            "hovertemplate": f"{title}<br>predicted for %{{x}}: %{{y:.4g}} samples/s, %{{customdata}}<extra></extra>",
            "showlegend": False,
        }


def _without_place(case: Case) -> Case:
    batch = case.batch if case.scaling == "weak" else case.global_batch
    return replace(case, batch=batch, placement=Placement(device=case.placement.device, threads=case.placement.threads))
