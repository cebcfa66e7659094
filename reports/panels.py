"""What may stand side by side in one chart: one network, one input, and no unproven row beside another framework's."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from reports.names import common, names
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.text import grouped

T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """Rows for one chart, each with its short name; `warning` says why they stand alone."""

    title: str
    rows: list[Row]
    names: list[str]
    common: str  # what the rows share: "batch 8 per device · tuned · float32 · ..."
    warning: str = ""


def by_network(rows: Iterable[Row]) -> list[Panel]:
    """Every row with a speed, a panel a network and input: for tables, which show the marks."""
    groups = grouped((row for row in rows if row.rates), lambda row: f"{row.case.workload} on {row.case.data_name}")
    return [_panel(title, group) for title, group in groups.items()]


def for_charts(rows: Iterable[Row]) -> list[Panel]:
    """The same for charts: rows that may not be compared are not shown where other frameworks' rows stand.

    Where none may be compared, every framework has a chart of its own.
    """
    found = []
    for panel in by_network(rows):
        kept, warning = beside_others(panel.rows)
        if kept:
            found.append(_panel(panel.title, kept, "" if len(kept) < len(panel.rows) else warning))
        else:
            for adapter, rows in grouped(panel.rows, lambda row: row.case.adapter).items():
                found.append(_panel(f"{panel.title}: {adapter}", rows, beside_others(rows)[1]))
    return found


@dataclass(frozen=True)
class Aside:
    """Rows with a speed that are not compared, for one and the same reason."""

    marks: tuple[str, ...]
    reason: str
    rows: tuple[Row, ...]


def set_aside(rows: Iterable[Row]) -> list[Aside]:
    """What no chart compares, by reason."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        marks = tuple(mark for mark in row.marks if mark in DISQUALIFYING)
        if marks and row.rate is not None:
            found.setdefault(marks, []).append(row)
    return [
        Aside(marks, "; ".join(DISQUALIFYING[mark] for mark in marks), tuple(those)) for marks, those in found.items()
    ]


def beside_others(rows: list[Row]) -> tuple[list[Row], str]:
    """Those that may share a chart, and the words about the others: one adapter's rows always may."""
    left = [row for row in rows if not row.sound]
    if not left:
        return rows, ""
    marks = sorted({mark for row in left for mark in row.marks if mark in DISQUALIFYING})
    if len({row.case.adapter for row in rows}) == 1:
        return rows, f"not to be compared: {', '.join(marks)}"
    called = sorted({f"{row.case.adapter}/{row.case.strategy}" for row in left})
    return [row for row in rows if row.sound], f"not shown ({', '.join(marks)}): {', '.join(called)}"


def kept_whole(things: Iterable[T], kept: Iterable[Row], rows_of: Callable[[T], Iterable[Row]]) -> list[T]:
    """Those of whose rows every one was kept."""
    ids = {row.id for row in kept}
    return [one for one in things if all(row.id in ids for row in rows_of(one))]


def _panel(title: str, rows: list[Row], warning: str = "") -> Panel:
    ordered = sorted(rows, key=_order)
    cases = [row.case for row in ordered]
    return Panel(title, ordered, names(cases), common(cases), warning)


def _order(row: Row) -> tuple[int, int, str, float]:
    return (
        row.case.placement.device_count,
        row.case.batch,
        row.case.tuning,
        -(row.rates.value if row.rates else 0.0),
    )
