"""What a run has for tables: its columns and lines, and the short form of them that fits a paper."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reports.names import names
from reports.table import COLUMNS, EXCHANGES, OF_THE_RUN, Cell, Column, exchange_table, table
from reports.text import interval, milliseconds, number
from suite.analysis.budget import STAGES
from suite.analysis.links import Link, links, written
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.results.run_folder import RunFolder


@dataclass(frozen=True)
class Sheet:
    """A run of trainings, a line a case; or one of `stagebench comm`, a line a message size."""

    columns: Sequence[Column[Any]]
    lines: Sequence[dict[str, Cell]]  # by column name
    paper: Sequence[Sequence[str]]  # the heading first; its first two columns are words
    note: str  # below the paper's table


def sheet(folder: RunFolder) -> Sheet:
    """The tables of a run folder, measured or imported."""
    if folder.about.of_comm:
        found = list(links(folder))
        lines, paper = exchange_table(folder, found), list(_exchanges(found))
        return Sheet((*EXCHANGES, *OF_THE_RUN), lines, paper, "Medians, of imported ones means; MB are 10\u2076 bytes.")
    rows = summarise(folder)
    note = "Stages in ms of the native iteration; * not to be compared with other frameworks."
    return Sheet((*COLUMNS, *OF_THE_RUN), table(folder, rows), list(_trainings(rows)), note)


def _trainings(rows: Sequence[Row]) -> Iterator[list[str]]:
    """A line a case that was measured: its speed, and in ms the stages that any of them has."""
    shown = [row for row in rows if row.rate]
    budgets = [row.budget for row in shown if row.budget]
    known = [stage for stage in STAGES if any(getattr(budget, stage) is not None for budget in budgets)]
    yield ["case", "network", "samples/s", "95 % interval", "ms per iteration", *known]
    for row, name in zip(shown, names([row.case for row in shown]), strict=True):
        stages = [milliseconds(getattr(row.budget, stage) if row.budget else None) for stage in known]
        native = milliseconds(row.budget.native if row.budget else None)
        star = "" if row.sound else " *"
        yield [
            name,
            row.case.workload,
            number(row.rate.value if row.rate else None) + star,
            interval(row.rate),
            native,
            *stages,
        ]


def _exchanges(found: Sequence[Link]) -> Iterator[list[str]]:
    """A line a message."""
    yield ["link", "operation", "message", "µs", "MB/s", "bus MB/s"]
    for link in found:
        for point in link.points:
            kind = "" if point.kind == "single" else f", {point.messages} tensors {point.kind}"
            rates = [number(rate, 1e-6) for rate in (point.algorithm_bandwidth, point.bus_bandwidth)]
            yield [link.case.label, point.operation, written(point.bytes) + kind, number(point.seconds, 1e6), *rates]
