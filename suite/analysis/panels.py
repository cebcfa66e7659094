"""Rows side by side, in groups that are compared, and short names, by what sets a case apart from its neighbours."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from stagebench.suite import plugins
from stagebench.suite.analysis.comparability import DISQUALIFYING
from stagebench.suite.analysis.rows import Row
from stagebench.suite.contracts.adapter import INFERENCE
from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.model_server import INPROCESS
from stagebench.suite.results.foreign import SYSTEM, UNKNOWN
from stagebench.suite.text import grouped
from stagebench.suite.worker.case_parts import BURST, Serving
from stagebench.suite.worker.pass_kinds import SERVER

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
    known = plugins.adapters()
    return known[adapter].title if adapter in known else adapter


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
        usual = case.strategy in ("single", INFERENCE) and several[case.adapter, case.placement.words] == 1
        plain = usual or case.strategy == UNKNOWN
        found.append(Name(called[case.adapter], " · ".join([*([] if plain else [case.strategy]), *differing, *own])))
    return found


def titles(cases: Sequence[Case]) -> list[str]:
    """Return a title for each group, by one of its cases: network, devices, batch, tuning, whatever else differs."""
    found = []
    for case, differing in zip(cases, differences(cases, TITLED), strict=True):
        batch = f"batch {case.batch}" if case.scaling == "weak" else f"batch {case.global_batch} in all"
        setting = [case.workload, devices(case.placement.device_count), batch]
        served = SERVER in case.passes and case.serving.model_server != INPROCESS
        own = [*differing, *["samples/s in process"] * served]  # `offline` asks the predictor, and no server
        found.append(" · ".join([*setting, *([] if case.tuning == UNKNOWN else [case.tuning]), *own]))
    return found


def devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def differences(cases: Sequence[Case], but: Sequence[str] = ()) -> list[list[str]]:
    """Return for each case the properties in which the cases differ, but for adapters, their knobs, and `but`."""
    return varying([{key: word for key, word in _properties(case).items() if key not in but} for case in cases])


def varying(columns: Sequence[dict[str, str]]) -> list[list[str]]:
    """Return the words in which the columns differ, by column; all have the same keys, an empty word says nothing."""
    keys = [key for key in columns[0] if len({column[key] for column in columns}) > 1] if columns else []
    return [[column[key] for key in keys if column[key]] for column in columns]


def common(cases: Sequence[Case]) -> str:
    """Return what all the cases share, besides network and data, which a heading names."""
    columns = [_properties(case) for case in cases]
    keys = ("ranks", "batch", "tuning", "precision", "device", "threads")
    shared = (columns[0][key] for key in keys if len({column[key] for column in columns}) == 1)
    return " · ".join(filter(None, shared))


def behind(rule: Serving) -> str:
    """Return who takes a load's queries, in words."""
    if rule.model_server == INPROCESS:
        return "in process"
    return f"behind {rule.model_server}{set_up(rule)}"


def set_up(rule: Serving) -> str:
    """Return a model server's address, workers and own options, as they follow its name."""
    where = f" at {rule.address}" * bool(rule.address) + f", {rule.workers} workers" * (rule.workers > 1)
    return where + "".join(f", {name}={value}" for name, value in rule.options.items())


def arriving(arrivals: str) -> str:
    return {"poisson": "singly", "bursts": f"in bursts of {BURST}"}.get(
        arrivals, f"as in {Path(arrivals.rpartition('@')[0]).name}"
    )


def clipping(case: Case) -> str:
    """Return the clipping of gradients in words; "" if there is none."""
    return f"gradients clipped to a norm of {case.clip_norm:g}" if case.clip_norm else ""


def _properties(case: Case) -> dict[str, str]:
    """Return a word for each property of a case; an empty one for what is unknown."""
    place, read = case.placement, case.input
    batched = SERVER in case.passes and not case.serving.address
    words = {
        "workload": case.workload,
        "task": "inference" if case.infers else "training",
        "ranks": place.words,
        "nodes": f"{place.nodes} node{'s' if place.nodes > 1 else ''}",
        "batch": f"batch {case.batch} per device" if case.scaling == "weak" else f"batch {case.global_batch} in all",
        "data": case.data_name,
        "tuning": case.tuning,
        "precision": case.precision,
        "optimiser": case.optimiser,
        "clipping": clipping(case),
        "schedule": case.schedule.words or "constant rate",
        "device": place.device,
        "threads": f"{place.threads} thread{'s' if place.threads > 1 else ''} per device",
        "mode": f"from {read.mode}" if case.data != "synthetic" else "",
        "format": read.format,
        "page cache": f"page cache {read.page_cache}",
        "prefetch": f"{read.prefetch} ahead",
        "repeat": f"{read.repeat}× data",  # noqa: RUF001
        "augment": f"{read.augment} crop",
        "on_error": f"on error {read.on_error}",
        "model server": behind(case.serving) if SERVER in case.passes else "",
        "arrivals": arriving(case.serving.arrivals) if SERVER in case.passes else "",
        "delay": f"batched within {case.serving.max_delay_ms:g} ms" if batched else "",
        "bound": f"{case.serving.bound_share:.4g} within {case.serving.bound_ms:g} ms" if SERVER in case.passes else "",
        "straggler": f"straggler {case.straggler:.0%}" if case.straggler else "",
        "readers": f"{case.readers} reader{'s' if case.readers != 1 else ''}",
        "seed": f"seed {case.seed}",
    }
    unsaid = UNSAID if case.tuning == UNKNOWN else ()
    return {key: "" if key in unsaid or word == UNKNOWN else word for key, word in words.items()}


def _own_knobs(cases: Sequence[Case]) -> list[list[str]]:
    """Return the knobs in which cases of one adapter and strategy differ, by case: other adapters have other knobs.

    An imported case always has its system. Where such cases of one size differ in their launchers, that is the last
    of them.
    """
    differing = {}
    for whose, kin in grouped(cases, lambda case: (case.adapter, case.strategy)).items():
        first = kin[0].knobs
        differing[whose] = {
            key for case in kin for key in {**first, **case.knobs} if case.knobs.get(key) != first.get(key)
        }
    sizes = {((case.adapter, case.strategy, case.placement.words), case.placement.launcher) for case in cases}
    launchers = Counter(size for size, _ in sizes)
    return [
        [
            str(value) if key == SYSTEM else f"{key}={value}"
            for key, value in case.knobs.items()
            if key == SYSTEM or key in differing[case.adapter, case.strategy]
        ]
        + [case.placement.launcher] * (launchers[case.adapter, case.strategy, case.placement.words] > 1)
        for case in cases
    ]


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

    def order(row: Row) -> tuple[int, int, str, float]:
        return row.case.placement.device_count, row.case.batch, row.case.tuning, -row.speed

    return [panel(title, sorted(group, key=order)) for title, group in groups.items()]


def for_charts(panels: Iterable[Panel]) -> list[Panel]:
    """Return the panels without rows that may not be compared.

    Where no row of several frameworks may be compared, each framework has a panel of its own.
    """
    found = []
    for one in panels:
        kept, warning = beside_others(one.rows)
        if len(kept) == len(one.rows):
            found.append(replace(one, warning=warning))
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


def kept_whole(things: Sequence[T], rows_of: Callable[[T], Iterable[Row]]) -> tuple[list[T], str]:
    """Return (the things all of whose rows may share a chart, words about the others)."""
    kept, words = beside_others([row for one in things for row in rows_of(one)])
    ids = {row.id for row in kept}
    return [one for one in things if all(row.id in ids for row in rows_of(one))], words
