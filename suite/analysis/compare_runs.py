"""Two runs of the same cases, before and after a change: which cases are comparable, and the verdict on each.

Faster, slower or no detectable difference: each case's processes are compared by Welch's test, since the runs have no
common rounds. Over all cases together a wrong "faster" or "slower" comes up in at most 5 comparisons of 100 (S. Holm,
"A simple sequentially rejective multiple test procedure", 1979); an interval has the level at which its verdict was
reached. A change that is certainly smaller than the threshold is none.

The load `server` is judged by the rate that keeps its bound, which may be known only to a step between rates.

Processes of one run resemble each other more than runs of different days. If it is known how much a case's runs differ,
that is its noise, unless its processes scatter more.

The number of processes that a comparison needs follows from the noise, which is itself a guess from few processes: its
upper confidence limit is used, or every other plan would fall short (R. H. Browne, "On the use of a pilot sample for
sample size determination", 1995).
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from stagebench.suite.analysis.comparability import DISQUALIFYING
from stagebench.suite.analysis.latency import words_of
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.runs import (
    NAMED,
    NONE_KEPT,
    MeasuredRun,
    barring,
    differing,
    same_but_knobs,
    same_but_sampling,
)
from stagebench.suite.analysis.stats import LEVEL, Centre, Interval, Rates, around, centre, independent, student_t
from stagebench.suite.analysis.trend import Noise, noise
from stagebench.suite.analysis.wording import milliseconds, number
from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import RequestError
from stagebench.suite.results.stored import json_ready
from stagebench.suite.text import command_line, grouped
from stagebench.suite.worker.case_parts import PER_DECADE

SMALL = 0.03  # the default for the smallest change that matters
POWER = 0.95  # of finding the change, were the noise known; other uncertainty takes a few in a hundred
CAREFUL = 0.85  # confidence that the noise is no larger
MOST = 1000  # processes: a case that needs more cannot be measured
STEP = Noise(math.log(10) / PER_DECADE / 2, MOST)  # of rates "at least": one step is no verdict, two are
NOTICED = 1.25  # times: a bounded latency that changes by less is not named

FASTER, SLOWER, SAME = "faster", "slower", "no detectable difference"
REFUSED = "not comparable"
EXIT_CODES = {FASTER: 0, SAME: 0, SLOWER: 1, REFUSED: 2}

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Sides:
    """A case's speeds before and after, of two processes or more each."""

    before: Rates
    after: Rates
    runs: Noise | None = None  # how much its runs differ, if known


@dataclass(frozen=True)
class Judged:
    """The verdict on a case."""

    verdict: str
    ratio: Interval  # of the speeds, after over before
    needs: int | None  # processes of each run that would show a change as large as the threshold; None: no number would

    @property
    def resolution(self) -> float:
        """The smallest relative slow-down that would have shown."""
        return self.ratio.value / self.ratio.low - 1


def judged(cases: Mapping[Name, Sides], threshold: float) -> dict[Name, Judged]:
    """Judge all cases of a comparison; `threshold` is the smallest relative change that matters (0.03: 3 %)."""
    logarithms: dict[Name, Centre] = {}
    hopeless = set()  # two runs may differ by noise alone, however many processes they have
    for name, sides in cases.items():
        logarithm = independent(sides.after, sides.before)
        assert logarithm
        if sides.runs:  # the scatter of processes or of runs, whichever is larger
            error = sides.runs.deviation * math.sqrt(2)
            runs = Centre(logarithm.value, error, logarithm.count, sides.runs.degrees)
            hopeless |= {name} if runs.half_width() > threshold else set()
            logarithm = max(logarithm, runs, key=Centre.half_width)
        logarithms[name] = logarithm
    verdicts: dict[Name, Judged] = {}
    left, rejecting = len(cases), True
    for name in sorted(cases, key=lambda name: logarithms[name].chance):
        logarithm, sides = logarithms[name], cases[name]
        # Holm's level: the interval excludes 0 if the procedure finds a difference. After the first case without one,
        # no further case has one.
        level = 1 - (1 - LEVEL) / left
        rejecting = rejecting and logarithm.chance <= 1 - level
        left -= rejecting
        ratio = around(math.exp(logarithm.value), logarithm.half_width(level), logarithm.count)
        negligible = 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold
        own = processes_noise(sides.before, sides.after)
        needs = processes_needed(own, threshold, len(cases)) if own and name not in hopeless else None
        verdicts[name] = Judged(SAME if negligible else ratio.verdict, ratio, needs)
    return {name: verdicts[name] for name in cases}


def processes_noise(*sides: Rates) -> Noise | None:
    """Return the noise of single processes about their run's mean, on logarithms; None if no run has two."""
    centres = [centre(rates.logarithms) for rates in sides if len(rates.by_round) > 1]
    if not centres:
        return None
    degrees = sum(int(each.degrees) for each in centres)
    squares = sum(each.error**2 * each.count * each.degrees for each in centres)
    return Noise(math.sqrt(squares / degrees), degrees)


def processes_needed(noise: Noise, change: float, cases: int = 1) -> int | None:
    """Return the processes of each of two runs that show a relative `change` (0.03: 3 %) of one of `cases` cases.

    None: more than MOST.
    """
    from scipy.special import chdtri

    deviation = noise.deviation * math.sqrt(noise.degrees / float(chdtri(noise.degrees, CAREFUL)))
    share = 1 - (1 - LEVEL) / 2 / cases
    for count in range(2, MOST + 1):
        degrees = 2 * (count - 1)
        reach = student_t(share, degrees) + student_t(POWER, degrees)
        if reach * deviation * math.sqrt(2 / count) <= math.log1p(change):
            return count
    return None


@dataclass(frozen=True)
class Compared:
    """A case that at least one of the runs has."""

    before: Row | None
    after: Row | None
    bars: Sequence[str] = ()  # reasons that make it not comparable
    differs: Sequence[str] = ()  # other conditions that differ
    runs: Noise | None = None  # how much runs of it differ
    latency: Sequence[str] = ()  # of the load `server`, if it changed
    found: Judged | None = None  # None: not comparable

    @property
    def case(self) -> Case:
        """The later run's case, or else the earlier one's."""
        row = self.after or self.before
        assert row
        return row.case

    @property
    def verdict(self) -> str:
        return self.found.verdict if self.found else REFUSED

    def to_dict(self) -> dict[str, Any]:
        found = self.found
        values = {
            "label": self.case.label,
            "case": self.case,
            "before": self.before and self.before.id,
            "after": self.after and self.after.id,
            "verdict": self.verdict,
            "ratio": found and found.ratio,
            "resolution": found and found.resolution,
            "processes_needed": found and found.needs,
            "not_comparable_because": self.bars,
            "differs": self.differs,
            "bounded_latency": self.latency,
            "deviation_of_runs": self.runs and self.runs.deviation,
        }
        return json_ready(values)


@dataclass(frozen=True)
class Comparison:
    """Every case of two runs."""

    before: Path
    after: Path
    threshold: float
    cases: Sequence[Compared]
    unused: Sequence[str] = ()  # runs of the history that are not used for some cases, and the reasons

    @cached_property
    def verdict(self) -> str:
        """The verdict of the whole: a slow-down outweighs all else, then a case of the first run without a verdict."""
        verdicts = {compared.verdict for compared in self.cases}
        if SLOWER in verdicts:
            return SLOWER
        if verdicts == {REFUSED} or any(each.verdict == REFUSED and each.before for each in self.cases):
            return REFUSED
        return FASTER if FASTER in verdicts else SAME

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": str(self.before),
            "after": str(self.after),
            "threshold": self.threshold,
            "verdict": self.verdict,
            "cases": [compared.to_dict() for compared in self.cases],
            "history_unused": list(self.unused),
        }


def compare(
    before: MeasuredRun,
    after: MeasuredRun,
    threshold: float,
    history: Sequence[MeasuredRun] = (),
    allowed: Collection[str] = (),
) -> Comparison:
    """Compare every case that either run has a speed of; RequestError if one has none, or if both are the same run.

    `threshold` is the smallest change that matters (0.03: 3 %), `history` further runs that show how much runs differ,
    `allowed` the kinds of conditions that may differ.
    """
    if before.key == after.key:
        raise RequestError(f"{before.path} and {after.path} are the same run; name two runs")
    for run in (before, after):
        if not run.measured:
            command = command_line("stagebench", "show", run.path)
            raise RequestError(f"{run.path} has measured no speed; `{command}` says why")
    earlier = {run.key: run for run in (*history, before) if run.key != after.key}
    unused: dict[str, Counter[str]] = {key: Counter() for key in earlier}
    pairs = []
    for one, other in paired(before, after):
        rates = [] if one is None else _rates_of_runs(before, earlier, one, allowed, unused)
        pairs.append(replace(_pair(before, after, one, other, allowed), runs=noise(rates)))
    notes = []
    for run in history:
        if run.key in (before.key, after.key):
            notes.append(f"--history {run.path} is the {'first' if run.key == before.key else 'second'} run itself")
            continue
        for reason, count in unused[run.key].items():
            notes.append(f"--history {run.path} says nothing of {count} case{'s' if count > 1 else ''}: {reason}")
    sides = {at: found for at, pair in enumerate(pairs) if (found := _sides(pair))}
    judgements = judged(sides, threshold)
    cases = [replace(pair, found=judgements.get(at)) for at, pair in enumerate(pairs)]
    return Comparison(before.path, after.path, threshold, cases, notes)


def _sides(pair: Compared) -> Sides | None:
    """Return the results of a comparable case."""
    before, after = (row and row.judged_by for row in (pair.before, pair.after))
    if pair.bars or not before or not after:
        return None
    lower = pair.before if before.value < after.value else pair.after
    unsure = lower and lower.kept and lower.kept.at_least  # it may be as large as the other one
    noises = filter(None, (pair.runs, STEP if unsure else None))
    return Sides(before, after, max(noises, default=None))


def _latency(before: Row, after: Row) -> list[str]:
    """Return in words the bounded percentile at the largest rate that both tried, if it changed much."""
    share = before.case.serving.bound_share
    ours, theirs = (row.served.pooled(share) if row.served else {} for row in (before, after))
    rate = max(ours.keys() & theirs.keys(), default=None)
    if rate is None or 1 / NOTICED < theirs[rate] / ours[rate] < NOTICED:
        return []
    change = f"{milliseconds(ours[rate])} → {milliseconds(theirs[rate])} ms"
    return [f"{words_of(share)} at {number(rate)} queries/s: {change}"]


def _rates_of_runs(
    before: MeasuredRun,
    runs: Mapping[str, MeasuredRun],
    own: Row,
    allowed: Collection[str],
    unused: Mapping[str, Counter[str]],
) -> list[float]:
    """Return the logarithms of a case's speeds in runs under the conditions of `before`, the oldest first.

    `unused` counts, by run, the reasons for which a run does not show how much runs of a case differ.
    """
    same = same_but_sampling(own.case)
    rates = []
    for key, run in runs.items():
        rows = [row for row in run.measured.values() if same_but_sampling(row.case) == same]
        bars = []
        for row in rows:
            bars.append(_disqualified(row) or differing(before.conditions(own), run.conditions(row), barring(allowed)))
            if not bars[-1] and row.judged_by:
                rates.append((run.about.created, math.log(row.judged_by.value)))
        if all(bars):
            unused[key][bars[0][0] if bars else "it has no speed of it"] += 1
    return [rate for _, rate in sorted(rates)]


def paired(before: MeasuredRun, after: MeasuredRun) -> list[tuple[Row | None, Row | None]]:
    """Pair rows of equal cases: by id; else by all but how they were measured; else by all but their knobs, too."""
    ours, theirs = dict(before.measured), dict(after.measured)
    partners: dict[str, Row] = {}
    keys: tuple[Callable[[Case], object], ...] = (lambda case: case.id, same_but_sampling, same_but_knobs)
    for key in keys:
        one, other = _unique(ours, key), _unique(theirs, key)
        for name in one.keys() & other.keys():
            partners[one[name].id] = other[name]
            del ours[one[name].id], theirs[other[name].id]
    return [(row, partners.get(row.id)) for row in before.measured.values()] + [(None, row) for row in theirs.values()]


def _unique(rows: Mapping[str, Row], key: Callable[[Case], object]) -> dict[str, Row]:
    """Return by key the rows whose key no other row has."""
    by_key = grouped(rows.values(), lambda row: str(key(row.case)))
    return {name: same[0] for name, same in by_key.items() if len(same) == 1}


def _pair(
    before: MeasuredRun, after: MeasuredRun, one: Row | None, other: Row | None, allowed: Collection[str]
) -> Compared:
    """Return two rows with the reasons that bar their comparison, and their other differences."""
    if one is None or other is None:
        row, without = (one, after) if one else (other, before)
        assert row
        wanted = same_but_sampling(row.case)
        cases = [same_but_sampling(each.case) for each in without.rows]
        bar = f"{without.path} has no such case"
        if wanted in cases:
            same = without.rows[cases.index(wanted)]
            bar = f"{without.path}: {same.outcome}{': ' if same.reason else ''}{same.reason}"
        elif any(replace(case, graph_digest=wanted.graph_digest) == wanted for case in cases):
            bar = f"{without.path} has another network by the name {row.case.workload}"
        return Compared(one, other, bars=[bar])
    ours, theirs = before.conditions(one), after.conditions(other)
    bars = differing(ours, theirs, barring(allowed))
    for run, row in ((before, one), (after, other)):
        bars += [f"{run.path}: {words}" for words in _disqualified(row)]
        if len(row.judged_by.by_round if row.judged_by else row.measured) < 2:
            bars.append(f"{run.path}: one process, and noise shows from two on; measure more")
    differs = differing(ours, theirs, [*allowed, *NAMED])
    return Compared(one, other, bars, differs, latency=_latency(one, other))


def _disqualified(row: Row) -> list[str]:
    marks = [f"{mark}: {DISQUALIFYING[mark]}" for mark in row.marks if mark in DISQUALIFYING]
    return [*marks, *([] if row.judged_by else [NONE_KEPT])]
