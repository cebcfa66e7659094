"""Rows side by side: groups that are compared, networks, no unproven row next to another framework's."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from reports.words.names import Name, common, labels, titles
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.text import grouped

SHOWN = 300  # lines of a table and rows of charts: more take a browser long; the table of all cases has every one
T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """Rows for one chart or a part of a table; `warning` says why they are shown by themselves."""

    title: str
    rows: list[Row]
    names: list[Name]
    common: str = ""  # "batch 8 per device · tuned · float32 · ..."
    warning: str = ""

    @property
    def pairs(self) -> list[tuple[Name, Row]]:
        return list(zip(self.names, self.rows, strict=True))


def panel(title: str, rows: list[Row], warning: str = "") -> Panel:
    cases = [row.case for row in rows]
    return Panel(title, rows, labels(cases), common(cases), warning)


def by_group(rows: Iterable[Row]) -> list[Panel]:
    """Return rows that may be compared with each other, the fastest first; the setting that they share is the title."""
    groups = [sorted(group, key=lambda row: -row.speed) for group in grouped(rows, lambda row: row.group).values()]
    called = titles([group[0].case for group in groups])
    return [
        Panel(title, group, labels([row.case for row in group], titled=True))
        for title, group in zip(called, groups, strict=True)
    ]


def by_network(rows: Iterable[Row]) -> list[Panel]:
    """Return every row with a speed, a panel a network and data set."""
    groups = grouped((row for row in rows if row.rates), lambda row: f"{row.case.workload} on {row.case.data_name}")
    return [panel(title, sorted(group, key=_order)) for title, group in groups.items()]


def for_charts(panels: Iterable[Panel]) -> list[Panel]:
    """Return the panels without rows that may not be compared.

    Where no row of several frameworks may be compared, each framework has a panel of its own.
    """
    found = []
    for one in panels:
        kept, warning = beside_others(one.rows)
        if len(kept) == len(one.rows):
            found.append(Panel(one.title, one.rows, one.names, one.common, warning))
        elif kept:
            found.append(Panel(one.title, kept, labels([row.case for row in kept], titled=True), one.common))
        else:
            by_adapter = grouped(one.rows, lambda row: row.case.adapter).values()
            found += [panel(one.title, rows, beside_others(rows)[1]) for rows in by_adapter]
    return found


def beside_others(rows: list[Row]) -> tuple[list[Row], str]:
    """Return (rows that may share a chart, words about the others); one framework's rows always may."""
    left = [row for row in rows if not row.sound]
    if not left:
        return rows, ""
    marks = sorted({mark for row in left for mark in row.marks if mark in DISQUALIFYING})
    if len({row.case.adapter for row in rows}) == 1:
        return rows, f"not compared: {', '.join(marks)}"
    called = sorted({f"{row.case.adapter}/{row.case.strategy}" for row in left})
    return [row for row in rows if row.sound], f"not shown ({', '.join(marks)}): {', '.join(called)}"


def kept_whole(things: Iterable[T], kept: Iterable[Row], rows_of: Callable[[T], Iterable[Row]]) -> list[T]:
    """Return the things all of whose rows were kept."""
    ids = {row.id for row in kept}
    return [one for one in things if all(row.id in ids for row in rows_of(one))]


def _order(row: Row) -> tuple[int, int, str, float]:
    return row.case.placement.device_count, row.case.batch, row.case.tuning, -row.speed
