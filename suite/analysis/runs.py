"""Runs side by side: the conditions that two rows differ in, and the runs of months as one series per case."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from stagebench.suite.analysis.comparability import DISQUALIFYING
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Interval
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.analysis.trend import change_points
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError, StoreError
from stagebench.suite.files import real
from stagebench.suite.results.machines import limited
from stagebench.suite.results.records import About, Host
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.results.stored import json_ready
from stagebench.suite.text import grouped
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.pass_kinds import SERVER

# Kinds of conditions that bar a comparison if they differ; a person may allow the latter two, as the question.
METHOD, ALLOWED = "method", ("machine", "knobs")
# Kinds that are named next to a comparison if they differ.
NAMED = ("versions", "code", "system", "sampling")
NONE_KEPT = "no rate of its queries is known to keep the bound in every process"

Conditions = Mapping[str, Mapping[str, str]]  # by kind and name


@dataclass(frozen=True)
class MeasuredRun:
    """A run folder, read."""

    path: Path  # as messages name it: a page knows it by its own folder
    about: About
    rows: Sequence[Row]
    hosts: Mapping[str, Host]

    @classmethod
    def read(cls, path: Path) -> "MeasuredRun":
        """Read a run of trainings; RequestError for another folder, or if it cannot be read."""
        try:
            folder = RunFolder.open(path)
            return cls(path, folder.about, summarise(folder), folder.hosts())
        except StoreError as error:
            raise RequestError(str(error)) from error

    @property
    def key(self) -> str:
        """An identity that a copy of the run shares."""
        return self.about.id or str(real(self.path))

    @cached_property
    def measured(self) -> dict[str, Row]:
        """The rows with a speed, by case id."""
        return {row.id: row for row in self.rows if row.rates}

    def conditions(self, row: Row) -> Conditions:
        """Return the known conditions of a row of this run."""
        kinds: dict[str, dict[str, Any]] = {
            METHOD: {"method": self.about.method},
            "machine": {},
            "knobs": row.case.knobs,
            "versions": {"stagebench": self.about.stagebench},
            "code": {"commit": self.about.commit},
            "system": {},
            "sampling": {**row.case.sampling._asdict(), "passes": ", ".join(row.case.passes)},
        }
        for process in row.measured:
            about = process.about
            kinds["versions"] |= {"Python": about.interpreter.version, **about.interpreter.packages, **about.versions}
            kinds["code"]["adapter"] = about.bundle[:12]
            kinds["system"] |= {"hosts": ", ".join(about.hosts), "transport": about.transport}
            for host in (self.hosts[name] for name in about.hosts if name in self.hosts):
                kinds["machine"] |= {
                    "CPU": host.machine.cpu,
                    "cores": host.cores,
                    "GPUs": ", ".join(gpu.partition(" (")[0] for gpu in host.machine.gpus),  # without serial numbers
                    "CPU quota": host.machine.cpu_quota,
                }
                kinds["system"] |= {
                    "memory": f"{host.machine.memory_bytes / 2**30:.0f} GiB" if host.machine.memory_bytes else None,
                    "kernel": host.machine.kernel,
                    "governor": host.machine.governor,
                    "OS": host.machine.os,
                    "GPU driver": host.machine.gpu_driver,
                    "GPU limits": limited(host.machine, "cuda"),
                }
        return {
            kind: {name: str(value) for name, value in values.items() if value not in (None, "", ())}
            for kind, values in kinds.items()
        }


def differing(before: Conditions, after: Conditions, kinds: Collection[str]) -> list[str]:
    """Return in words the conditions of these kinds that differ; a condition that is unknown in one does not."""
    return [
        f"{kind}{f': {name}' if name != kind else ''} {value} → {after[kind][name]}"
        for kind in kinds
        for name, value in before[kind].items()
        if after[kind].get(name, value) != value
    ]


def barring(allowed: Collection[str]) -> list[str]:
    """Return the kinds that bar a comparison; RequestError if one cannot be allowed."""
    for kind in allowed:
        if kind not in ALLOWED:
            raise RequestError(f"--across {kind!r}: what may differ is {' or '.join(ALLOWED)}; name one")
    return [kind for kind in (METHOD, *ALLOWED) if kind not in allowed]


def same_but_sampling(case: Case) -> Case:
    """Return the case without how, and on which hosts, it was measured; the load `server` is another measurement."""
    place, passes = replace(case.placement, hosts=()), tuple({SERVER}.intersection(case.passes))
    return replace(case, placement=place, sampling=Sampling(), passes=passes, time_limit=0.0, silence_limit=0.0)


def same_but_knobs(case: Case) -> Case:
    """Return `same_but_sampling` without knobs."""
    return replace(same_but_sampling(case), knobs={})


class Point(NamedTuple):
    """A case in one run."""

    run: MeasuredRun
    row: Row

    @property
    def level(self) -> Interval:
        """The speed, or the rate that keeps a bound."""
        assert self.row.judged_by
        return self.row.judged_by.interval


@dataclass(frozen=True)
class Change:
    """A new level, which lasts until the next one."""

    at: int  # the first point of it
    ratio: float  # of its median speed to that of the level before
    # Conditions in which that run differs from the one before it; without any, those that changed a run off.
    differs: Sequence[str]


@dataclass(frozen=True)
class Series:
    """A case over runs, the oldest first."""

    points: Sequence[Point]
    changes: Sequence[Change]

    @property
    def case(self) -> Case:
        """The latest run's case."""
        return self.points[-1].row.case

    def to_dict(self) -> dict[str, Any]:
        points = [
            {
                "run": point.run.path,
                "created": point.run.about.created,
                "commit": point.run.about.commit,
                "id": point.row.id,
                point.row.unit.replace("/s", "_per_second"): point.level,
            }
            for point in self.points
        ]
        return json_ready({"label": self.case.label, "case": self.case, "points": points, "changes": self.changes})


def history(runs: Sequence[MeasuredRun], threshold: float) -> list[Series]:
    """Return every case with a sound speed; RequestError for fewer than two different runs.

    Runs are ordered by when they began; figures of different methods are different series. A change that is surely
    smaller than `threshold` (0.03: 3 %) is none.
    """
    different = {run.key: run for run in runs}
    if len(different) < 2:
        paths = ", ".join(str(run.path) for run in runs)
        raise RequestError(f"{paths}: a history takes two runs or more; name another one")
    ordered = sorted(different.values(), key=lambda run: run.about.created)
    series = series_of(ordered, threshold)
    if not series:
        paths, why = " and ".join(str(run.path) for run in ordered), "; ".join(left_out(ordered))
        raise RequestError(
            f"{paths} have no case for a history; {why or 'nothing was measured'}; name runs with a case in common, "
            "and its proof"
        )
    return series


def series_of(ordered: Sequence[MeasuredRun], threshold: float) -> list[Series]:
    """Return every case with a sound speed in one of the different runs, of which the oldest is first."""
    points = [Point(run, row) for run in ordered for row in run.measured.values() if row.comparable and row.judged_by]
    # A new version of an adapter may have another knob, which makes no other case, unless a run has several.
    counts = Counter((point.run.key, same_but_knobs(point.row.case).id) for point in points)
    ambiguous = {id_ for (_, id_), count in counts.items() if count > 1}

    def key(point: Point) -> tuple[str, int]:
        id_ = same_but_knobs(point.row.case).id
        return same_but_sampling(point.row.case).id if id_ in ambiguous else id_, point.run.about.method

    return [_series(several, threshold) for several in grouped(points, key).values()]


def left_out(runs: Sequence[MeasuredRun]) -> list[str]:
    """Return a sentence for each mark that keeps rows out of a history."""
    rows = [row for run in runs for row in run.measured.values()]
    marks = Counter(mark for row in rows for mark in row.marks if mark in DISQUALIFYING)
    reasons = {f"{mark}: {DISQUALIFYING[mark]}": count for mark, count in marks.items()}
    reasons[NONE_KEPT] = sum(row.judged_by is None for row in rows)
    return [f"{count} row{'s' if count > 1 else ''} left out, {why}" for why, count in reasons.items() if count]


def _series(points: Sequence[Point], threshold: float) -> Series:
    speeds = [math.log(point.level.value) for point in points]
    ends = [0, *change_points(speeds, math.log1p(threshold)), len(points)]
    changes = []
    for before, at, end in zip(ends, ends[1:], ends[2:], strict=False):
        ratio = median(speeds[at:end]) - median(speeds[before:at])
        # The place of a change may be one run off. Every level has two runs or more, so both neighbours exist.
        conditions = [point.run.conditions(point.row) for point in points[at - 2 : at + 2]]
        earlier, here, later = (differing(old, new, (*ALLOWED, *NAMED)) for old, new in pairwise(conditions))
        near = [f"a run earlier: {words}" for words in earlier] + [f"a run later: {words}" for words in later]
        changes.append(Change(at, math.exp(ratio), here or near))
    return Series(points, changes)
