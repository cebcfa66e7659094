"""Rows side by side, in groups that are compared, and short names, by what sets a case apart from its neighbours."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from suite import plugins
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.contracts.case import Case
from suite.results.foreign import UNKNOWN
from suite.text import grouped
from suite.worker.case_parts import Input

SHOWN = 300  # lines of a table and rows of charts: more take a browser long; the table of all cases has every one
T = TypeVar("T")
TITLED = ("workload", "ranks", "batch", "tuning")  # said by the title of a group
UNSAID = ("threads", "mode")  # of imported cases, which no program states


def names(cases: Sequence[Case]) -> list[str]:
    """A name for each case: adapter/strategy, then every property in which the cases differ."""
    return [
        " · ".join([f"{case.adapter}/{case.strategy}", *differing, *own])
        for case, differing, own in zip(cases, differences(cases), _own_knobs(cases), strict=True)
    ]


class Name(NamedTuple):
    """A case's framework, and what sets it apart from other cases of that framework."""

    title: str
    detail: str

    @property
    def words(self) -> str:
        return f"{self.title} {self.detail}".strip()


def title(adapter: str) -> str:
    """Return a framework's name as its adapter writes it; the adapter's own where it is not installed."""
    known = plugins.adapters().get(adapter)
    return known.title if known else adapter


def labels(cases: Sequence[Case], titled: bool = False) -> list[Name]:
    """Return a name for each case; `single` is said only where its framework has other strategies there.

    `titled`: they are a group, whose title says what TITLED names.
    """
    strategies = {(case.adapter, case.placement.words, case.strategy) for case in cases}
    several = Counter((adapter, place) for adapter, place, _ in strategies)
    called = {adapter: title(adapter) for adapter in {case.adapter for case in cases}}
    found = []
    for case, differing, own in zip(
        cases, differences(cases, TITLED if titled else ()), _own_knobs(cases), strict=True
    ):
        plain = case.strategy == "single" and several[case.adapter, case.placement.words] == 1
        found.append(Name(called[case.adapter], " · ".join([*([] if plain else [case.strategy]), *differing, *own])))
    return found


def titles(cases: Sequence[Case]) -> list[str]:
    """Return a title for each group, by one of its cases: network, devices, batch, tuning, whatever else differs."""
    columns = [{key: word for key, word in _properties(case) if key not in TITLED} for case in cases]
    return [" · ".join([*_setting(case), *differing]) for case, differing in zip(cases, varying(columns), strict=True)]


def devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _setting(case: Case) -> Iterable[str]:
    yield case.workload
    yield devices(case.placement.device_count)
    yield f"batch {case.batch}" if case.scaling == "weak" else f"batch {case.global_batch} in all"
    if case.tuning != UNKNOWN:
        yield case.tuning


def differences(cases: Sequence[Case], but: Sequence[str] = ()) -> list[list[str]]:
    """Return for each case the properties in which the cases differ, but for adapters, their knobs, and `but`."""
    return varying([{key: word for key, word in _properties(case) if key not in but} for case in cases])


def varying(columns: Sequence[dict[str, str]]) -> list[list[str]]:
    """Return the words in which the columns differ, by column; all have the same keys, an empty word says nothing."""
    keys = [key for key in columns[0] if len({column[key] for column in columns}) > 1] if columns else []
    return [[column[key] for key in keys if column[key]] for column in columns]


def common(cases: Sequence[Case]) -> str:
    """Return what all the cases share, besides network and data, which a heading names."""
    columns = [dict(_properties(case)) for case in cases]
    keys = ("ranks", "batch", "tuning", "precision", "device", "threads")
    shared = (columns[0][key] for key in keys if len({column[key] for column in columns}) == 1)
    return " · ".join(filter(None, shared))


def _properties(case: Case) -> Iterable[tuple[str, str]]:
    """An empty word for what is unknown."""
    unsaid = UNSAID if case.tuning == UNKNOWN else ()
    return ((key, "" if key in unsaid or word == UNKNOWN else word) for key, word in _words(case))


def _words(case: Case) -> Iterable[tuple[str, str]]:
    place = case.placement
    yield "workload", case.workload
    yield "ranks", place.words
    yield "nodes", f"{place.nodes} node{'s' if place.nodes > 1 else ''}"
    yield "batch", f"batch {case.batch} per device" if case.scaling == "weak" else f"batch {case.global_batch} in all"
    yield "data", case.data_name
    yield "tuning", case.tuning
    yield "precision", case.precision
    yield "optimiser", case.optimiser
    yield "schedule", case.schedule.words or "constant rate"
    yield "device", place.device
    yield "threads", f"{place.threads} thread{'s' if place.threads > 1 else ''} per device"
    yield from _input(case.input, case.data != "synthetic")
    yield "straggler", f"straggler {case.straggler:.0%}" if case.straggler else ""
    yield "readers", f"{case.readers} reader{'s' if case.readers != 1 else ''}"
    yield "seed", f"seed {case.seed}"


def _input(read: Input, real: bool) -> Iterable[tuple[str, str]]:
    yield "mode", f"from {read.mode}" if real else ""
    yield "format", read.format
    yield "page cache", f"page cache {read.page_cache}"
    yield "prefetch", f"{read.prefetch} ahead"
    yield "repeat", f"{read.repeat}× data"  # noqa: RUF001
    yield "augment", f"{read.augment} crop"
    yield "on_error", f"on error {read.on_error}"


def _own_knobs(cases: Sequence[Case]) -> list[list[str]]:
    """Return the knobs in which cases of one adapter and strategy differ, by case: other adapters have other knobs."""
    kin: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    launchers: dict[tuple[str, ...], set[str]] = {}
    for case in cases:
        kin.setdefault((case.adapter, case.strategy), []).append(case.knobs)
        launchers.setdefault((case.adapter, case.strategy, case.placement.words), set()).add(case.placement.launcher)
    differing = {whose: _differing(several) for whose, several in kin.items()}
    return [
        [f"{key}={case.knobs[key]}" for key in case.knobs if key in differing[case.adapter, case.strategy]]
        + [case.placement.launcher] * (len(launchers[case.adapter, case.strategy, case.placement.words]) > 1)
        for case in cases
    ]


def _differing(several: Sequence[dict[str, Any]]) -> set[str]:
    first = several[0]
    return {key for knobs in several for key in {**first, **knobs} if knobs.get(key) != first.get(key)}


@dataclass(frozen=True)
class Panel:
    """Rows for one chart or a part of a table; `warning` says why they are shown alone."""

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
