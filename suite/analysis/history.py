"""The runs of months as one series per case, and the first run of each new level, with what else changed there."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from suite.analysis.change_points import change_points
from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.conditions import ALLOWED, NAMED, MeasuredRun, differing, same_but_knobs, same_but_sampling
from suite.analysis.rows import Row
from suite.contracts.case import Case
from suite.errors import RequestError
from suite.results.stored import json_ready


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
