"""Short names: a case is called by what sets it apart from those it stands beside."""

from collections.abc import Iterable, Sequence
from typing import Any

from suite.contracts.case import Case
from suite.results.foreign import UNKNOWN
from suite.worker.case_parts import Input

# What the table of all cases has columns for.
COLUMNS = ("workload", "ranks", "batch", "data", "tuning", "precision")
UNSAID = ("threads", "mode")  # of imported cases, which no program states


def names(cases: Sequence[Case]) -> list[str]:
    """A name for each case: adapter/strategy, then every property in which the cases differ."""
    return [
        " · ".join([f"{case.adapter}/{case.strategy}", *differing, *own])
        for case, differing, own in zip(cases, differences(cases), _own_knobs(cases), strict=True)
    ]


def settings(cases: Sequence[Case]) -> list[str]:
    """The same of what a table has no column for."""
    columns = [{key: word for key, word in _properties(case) if key not in COLUMNS} for case in cases]
    return [" · ".join([*differing, *own]) for differing, own in zip(varying(columns), _own_knobs(cases), strict=True)]


def differences(cases: Sequence[Case]) -> list[list[str]]:
    """For each case, the properties in which the cases differ; adapters and their knobs aside."""
    return varying([dict(_properties(case)) for case in cases])


def varying(columns: Sequence[dict[str, str]]) -> list[list[str]]:
    """Of each column the words in which the columns differ; all have the same keys, an empty word says nothing."""
    keys = [key for key in columns[0] if len({column[key] for column in columns}) > 1] if columns else []
    return [[column[key] for key in keys if column[key]] for column in columns]


def common(cases: Sequence[Case]) -> str:
    """What all the cases share, besides network and data, which a heading names."""
    columns = [dict(_properties(case)) for case in cases]
    keys = ("ranks", "batch", "tuning", "precision", "device", "threads")
    shared = (columns[0][key] for key in keys if len({column[key] for column in columns}) == 1)
    return " · ".join(filter(None, shared))


def _properties(case: Case) -> Iterable[tuple[str, str]]:
    """An empty word for what nobody knows."""
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
    yield "repeat", f"{read.repeat}× data"  # noqa: RUF001 - the sign is meant
    yield "augment", f"{read.augment} crop"
    yield "on_error", f"on error {read.on_error}"


def _own_knobs(cases: Sequence[Case]) -> list[list[str]]:
    """Of each case the knobs in which cases of its adapter and strategy differ: other adapters have other knobs."""
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
