"""Under which conditions a row was measured, and in which of them two rows differ, in words.

The runs of months as one series per case, and the first run of each new level, with what else changed there.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.machine import limited
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.analysis.trend import change_points
from suite.contracts.case import Case, Sampling
from suite.errors import RequestError, StoreError
from suite.files import real
from suite.results.records import About, Host
from suite.results.run_folder import RunFolder
from suite.results.stored import json_ready

# What keeps two rows from being compared where it differs; a person may allow the latter two: they may be the question.
METHOD, ALLOWED = "method", ("machine", "knobs")
# What is named beside a comparison where it differs.
NAMED = ("versions", "code", "system", "sampling")

Conditions = Mapping[str, Mapping[str, str]]  # by kind and name


@dataclass(frozen=True)
class MeasuredRun:
    """A run folder, read."""

    path: Path  # as messages name it: a page knows it by its own folder
    about: About
    rows: tuple[Row, ...]
    hosts: Mapping[str, Host]

    @classmethod
    def read(cls, path: Path) -> "MeasuredRun":
        """RequestError for what is no run of trainings, or cannot be read: nothing is concluded then."""
        try:
            folder = RunFolder.open(path)
            return cls(path, folder.about, tuple(summarise(folder)), folder.hosts())
        except StoreError as error:
            raise RequestError(str(error)) from error

    @property
    def key(self) -> str:
        """Tells runs from each other; a copy of one is the same run."""
        return self.about.id or str(real(self.path))

    @cached_property
    def measured(self) -> dict[str, Row]:
        """The rows with a speed, by case id."""
        return {row.id: row for row in self.rows if row.rates}

    def conditions(self, row: Row) -> Conditions:
        """Of a row of this run; without what nobody kept."""
        kinds: dict[str, dict[str, Any]] = {
            METHOD: {"method": self.about.method},
            "machine": {},
            "knobs": row.case.knobs,
            "versions": {"stagebench": self.about.stagebench},
            "code": {"commit": self.about.commit},
            "system": {},
            "sampling": {**asdict(row.case.sampling), "passes": ", ".join(row.case.passes)},
        }
        for process in row.measured:
            about = process.about
            kinds["versions"] |= {"Python": about.interpreter.version, **about.interpreter.packages, **about.versions}
            kinds["code"]["adapter"] = about.bundle[:12]
            kinds["system"] |= {"hosts": ", ".join(about.hosts), "transport": about.transport}
            for name in about.hosts:
                _of_host(self.hosts.get(name), kinds)
        return {
            kind: {name: str(value) for name, value in values.items() if value not in (None, "", ())}
            for kind, values in kinds.items()
        }


def _of_host(host: Host | None, kinds: dict[str, dict[str, Any]]) -> None:
    if host is None:
        return
    gpus = ", ".join(gpu.partition(" (")[0] for gpu in host.gpus)  # without what tells one from another of its model
    kinds["machine"] |= {"CPU": host.cpu, "cores": host.cores, "GPUs": gpus, "CPU quota": host.cpu_quota}
    memory = f"{host.memory_bytes / 2**30:.0f} GiB" if host.memory_bytes else None
    system = {"memory": memory, "kernel": host.kernel, "governor": host.governor, "OS": host.os}
    kinds["system"] |= {**system, "GPU driver": host.gpu_driver, "GPU limits": limited(host, "cuda")}


def differing(before: Conditions, after: Conditions, kinds: Collection[str]) -> list[str]:
    """In which of these kinds two rows differ, in words; what one of them did not keep is no difference."""
    return [
        f"{kind}: {name} {value} → {after[kind][name]}" if name != kind else f"{kind} {value} → {after[kind][name]}"
        for kind in kinds
        for name, value in before[kind].items()
        if after[kind].get(name, value) != value
    ]


def others(allowed: Collection[str]) -> list[str]:
    """The kinds that are named, and bar nothing."""
    return [*allowed, *NAMED]


def barring(allowed: Collection[str]) -> list[str]:
    """The kinds that bar a comparison; RequestError where something cannot be allowed."""
    for kind in allowed:
        if kind not in ALLOWED:
            raise RequestError(f"--across {kind!r}: what may differ is {' or '.join(ALLOWED)}; name one")
    return [kind for kind in (METHOD, *ALLOWED) if kind not in allowed]


def same_but_sampling(case: Case) -> Case:
    """The case with how, and on which hosts, it was measured forgotten."""
    place = replace(case.placement, hosts=())
    return replace(case, placement=place, sampling=Sampling(), passes=(), time_limit=0.0, silence_limit=0.0)


def same_but_knobs(case: Case) -> Case:
    """The case with its knobs forgotten, too."""
    return replace(same_but_sampling(case), knobs={})


@dataclass(frozen=True)
class Point:
    """A case in one run."""

    run: MeasuredRun
    row: Row

    @property
    def rate(self) -> float:
        """Samples/s."""
        assert self.row.rates
        return self.row.rates.value


@dataclass(frozen=True)
class Change:
    """A new level, which lasts until the next one."""

    at: int  # the first point of it
    ratio: float  # of its median speed to that of the level before
    # In what that run is unlike the one before it; if in nothing, what changed a run earlier, or later.
    differs: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """A case over runs, the oldest first."""

    points: tuple[Point, ...]
    changes: tuple[Change, ...]

    @property
    def case(self) -> Case:
        """As the latest run has it."""
        return self.points[-1].row.case

    def to_dict(self) -> dict[str, Any]:
        points = [
            {
                "run": point.run.path,
                "created": point.run.about.created,
                "commit": point.run.about.commit,
                "id": point.row.id,
                "samples_per_second": point.row.rate,
            }
            for point in self.points
        ]
        return json_ready({"label": self.case.label, "case": self.case, "points": points, "changes": self.changes})


def history(runs: Sequence[MeasuredRun], threshold: float) -> list[Series]:
    """Every case with a sound speed; RequestError for fewer than two different runs.

    Runs are ordered by when they began; figures of different methods are different series. A change that
    is surely smaller than `threshold` (0.03: 3 %) is none.
    """
    different = {run.key: run for run in runs}
    if len(different) < 2:
        raise RequestError(
            f"{', '.join(str(run.path) for run in runs)}: a history takes two runs or more; name another one"
        )
    ordered = sorted(different.values(), key=lambda run: run.about.created)
    found = series_of(ordered, threshold)
    if not found:
        raise RequestError(
            f"{' and '.join(str(run.path) for run in ordered)} have no case for a history; "
            f"{'; '.join(left_out(ordered)) or 'nothing was measured'}; name runs with a case in common, and its proof"
        )
    return found


def series_of(ordered: Sequence[MeasuredRun], threshold: float) -> list[Series]:
    """Every case with a sound speed in one of the different runs, the oldest of which is first."""
    found: dict[object, list[Point]] = {}
    ambiguous = {key for run in ordered for key, count in Counter(map(_loosely, _sound(run))).items() if count > 1}
    for run in ordered:
        for row in _sound(run):
            loosely = _loosely(row)
            key = same_but_sampling(row.case).id if loosely in ambiguous else loosely
            found.setdefault((key, run.about.method), []).append(Point(run, row))
    return [_series(points, threshold) for points in found.values()]


def left_out(runs: Sequence[MeasuredRun]) -> list[str]:
    """What a history does not show, a sentence for each mark that speaks against it."""
    marks = Counter(
        mark for run in runs for row in run.measured.values() for mark in row.marks if mark in DISQUALIFYING
    )
    return [
        f"{count} row{'s' if count > 1 else ''} left out, {mark}: {DISQUALIFYING[mark]}"
        for mark, count in marks.items()
    ]


def _sound(run: MeasuredRun) -> Iterable[Row]:
    return (row for row in run.measured.values() if row.comparable)


def _loosely(row: Row) -> str:
    """A new version of an adapter may have a knob more, which is no other case."""
    return same_but_knobs(row.case).id


def _series(points: Sequence[Point], threshold: float) -> Series:
    speeds = [math.log(point.rate) for point in points]
    ends = [0, *change_points(speeds, math.log1p(threshold)), len(points)]
    changes = []
    for before, at, end in zip(ends, ends[1:], ends[2:], strict=False):
        ratio = median(speeds[at:end]) - median(speeds[before:at])
        changes.append(Change(at, math.exp(ratio), tuple(_changed_with(points, at))))
    return Series(tuple(points), tuple(changes))


def _changed_with(points: Sequence[Point], at: int) -> list[str]:
    """What else changed at a new level's first run; if nothing, beside it, since that place may be one run off.

    Every level has two runs or more, so that both neighbours are there.
    """
    beside = (("a run earlier", at - 1), ("a run later", at + 1))
    return _unlike_before(points, at) or [
        f"{when}: {what}" for when, place in beside for what in _unlike_before(points, place)
    ]


def _unlike_before(points: Sequence[Point], at: int) -> list[str]:
    """In what a run is unlike the one before it."""
    old, new = (each.run.conditions(each.row) for each in points[at - 1 : at + 1])
    return differing(old, new, (*ALLOWED, *NAMED))
