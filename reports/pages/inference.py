"""Inference: how soon a query is answered, and which framework answers most, by batch and threads."""

from collections.abc import Hashable
from dataclasses import replace

from markupsafe import Markup

from stagebench.reports.charts.html import Body, Cells, joined, note, table, tag
from stagebench.reports.charts.rows import Rows
from stagebench.reports.pages.run import Report, Section, named
from stagebench.suite.analysis.comparability import group
from stagebench.suite.analysis.latency import PERCENTILES, words_of
from stagebench.suite.analysis.panels import SHOWN, Panel, by_group, for_charts, title
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.scaling import in_parts
from stagebench.suite.analysis.wording import bracketed, milliseconds, number
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.pass_kinds import SINGLE_STREAM

FIRST = PERCENTILES[SINGLE_STREAM][0]
ASKED = {"single_stream": "1 sample", "multi_stream": "8 samples"}


def latency(report: Report) -> Section | None:
    """Return the latencies of single queries, and the speeds side by side."""
    rows = [row for row in report.fast if row.case.infers]
    if not any(process.latencies for row in rows for process in row.measured):
        return None
    panels = by_group(rows[:SHOWN])
    columns = [(load, share) for load, shares in PERCENTILES.items() for share in shares]
    heads = "Case | offline, samples/s! | " + " | ".join(f"{ASKED[load]}, {words_of(at)}, ms" for load, at in columns)

    def cells(row: Row) -> Cells:
        found = [row.latency(load, share) for load, share in columns]
        return [number(row.speed), *(milliseconds(each.value) if each else "" for each in found)]

    body: Cells = [report.cut(rows, "cases that infer")]
    least = min(row.case.batch for row in rows)  # of offline: single queries are the same at each
    drawn = for_charts(by_group([row for row in rows if row.case.batch == least][:SHOWN]))
    body.append(report.drawn("latency", (_of_one(report, panel) for panel in drawn if len(panel.rows) > 1)))
    body.append(table("Latencies", heads, *report.bodies(panels, cells)))
    sound = [row for row in rows if row.sound]
    body += [_sweep(sound), _stages(sound)]
    known = [found.value for row in sound if (found := row.latency(SINGLE_STREAM, FIRST))]
    headline, also = "Too few queries for a percentile", ""
    if not sound:
        headline, also = "No latency may be compared", "The marks of each case say why."
    if known:
        low, high = milliseconds(min(known)), milliseconds(max(known))
        headline = f"A single sample is answered within {low if low == high else f'{low} to {high}'} ms"
        also = f"Nine of ten queries of one sample are answered within it ({words_of(FIRST)}), one after the other."
    return Section("latency", headline, body, also)


def _of_one(report: Report, panel: Panel) -> Rows | None:
    found = [(name, row, row.latency(SINGLE_STREAM, FIRST)) for name, row in panel.pairs]
    known = [(name, row, each.scaled(1000)) for name, row, each in found if each]
    if not known:
        return None
    known.sort(key=lambda each: each[2].value)
    first, _, least = known[0]
    words = f"{first.words} answers first: {number(least.value)} ms"
    drawn = [(name, row, each, "rest") for name, row, each in known]
    return report.bars(words, panel.title, drawn, unit="ms", warning=panel.warning)


def _sweep(rows: list[Row]) -> Markup | None:
    """Return samples/s of all sizes: a line a framework, a column a batch and its threads; None of a single size."""
    sizes = sorted({_size(row) for row in rows})
    if len(sizes) < 2:
        return None
    bodies = []
    for those in grouped(rows, _setting).values():
        lines = []
        for adapter, own in grouped(those, lambda row: row.case.adapter).items():
            at = {_size(row): row for row in sorted(own, key=lambda row: row.speed)}  # the fastest of several
            lines.append([title(adapter), *(_speed(at[size]) if size in at else "" for size in sizes)])
        case = those[0].case
        where = f"{counted(case.placement.device_count, 'device')} ({case.placement.device})"
        bodies.append(Body(lines, f"{case.workload} · {case.tuning} · {where} · {case.precision}"))
    heads = ["Framework", *(f"batch {batch}, {counted(threads, 'thread')}" for batch, threads in sizes)]
    words = "samples/s offline, by batch and threads; ● leads its column, ◐ shares the lead."
    return joined([tag("h3", "Where each leads"), table("Where each leads", heads, *bodies), note(words)])


def _stages(rows: list[Row]) -> Markup | None:
    """Return what networks in stages reach of the whole one on one device; None without both."""
    by_id = {row.id: row for row in rows}
    staged = [row for row in rows if in_parts(row) and row.scaling and row.scaling.baseline_id in by_id]
    lines = list[Cells]()
    for name, row in named(staged):
        assert row.scaling
        gain, devices = row.scaling.efficiency.scaled(row.case.placement.device_count), row.case.placement.device_count
        waits = [each.latency(SINGLE_STREAM, FIRST) for each in (row, by_id[row.scaling.baseline_id])]
        one, other = (each.value if each else None for each in waits)
        longer = number(one / other) if one and other else ""
        lines.append([name.words, str(devices), f"{number(gain.value)}{bracketed(gain)}", gain.verdict, longer])
    if not lines:
        return None
    heads = f"Case | devices | samples/s, of one device’s | verdict | 1 sample, {words_of(FIRST)}, of one device’s"
    return joined([tag("h3", "In stages, against one device"), table("In stages", heads, lines)])


def _setting(row: Row) -> Hashable:
    """Return what cases share that differ in framework, batch and threads."""
    return group(row.case.on(batch=1, serving=Serving(), placement=replace(row.case.placement, threads=1)))


def _size(row: Row) -> tuple[int, int]:
    return row.case.batch, row.case.placement.threads


def _speed(row: Row) -> str:
    sign = ""
    if row.against and row.against.leads:
        sign = "● " if row.against.verdict == "leads" else "◐ "
    return f"{sign}{number(row.speed)}"
