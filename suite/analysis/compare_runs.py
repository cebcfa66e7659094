"""Two runs of the same cases, before and after a change: which cases are equal, comparable, and different in what."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from suite.analysis.comparability import DISQUALIFYING
from suite.analysis.rows import Row
from suite.analysis.runs import MeasuredRun, barring, differing, others, same_but_knobs, same_but_sampling
from suite.analysis.trend import Noise, noise
from suite.analysis.verdicts import FASTER, SAME, SLOWER, Judged, Sides, judged
from suite.contracts.case import Case
from suite.errors import RequestError
from suite.results.stored import json_ready
from suite.text import command_line, grouped

REFUSED = "not comparable"
EXIT_CODES = {FASTER: 0, SAME: 0, SLOWER: 1, REFUSED: 2}


@dataclass(frozen=True)
class Compared:
    """A case that at least one of the runs has."""

    before: Row | None
    after: Row | None
    bars: Sequence[str] = ()  # reasons that make it not comparable
    differs: Sequence[str] = ()  # other conditions that differ
    runs: Noise | None = None  # how much runs of it differ
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

    @property
    def sides(self) -> Sides:
        """The speeds of a case that is comparable."""
        before, after = (row.rates if row else None for row in (self.before, self.after))
        assert before
        assert after
        return Sides(before, after, self.runs)

    def to_dict(self) -> dict[str, Any]:
        judgement = self.found
        values = {
            "label": self.case.label,
            "case": self.case,
            "before": self.before and self.before.id,
            "after": self.after and self.after.id,
            "verdict": self.verdict,
            "ratio": judgement and judgement.ratio,
            "resolution": judgement and judgement.resolution,
            "processes_needed": judgement and judgement.needs,
            "not_comparable_because": self.bars,
            "differs": self.differs,
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
    pairs = [_pair(before, after, one, other, allowed) for one, other in paired(before, after)]
    pairs = [replace(pair, runs=_noise_of_runs(before, earlier.values(), pair, allowed)) for pair in pairs]
    judgements = judged({at: pair.sides for at, pair in enumerate(pairs) if not pair.bars}, threshold)
    cases = [replace(pair, found=judgements.get(at)) for at, pair in enumerate(pairs)]
    unused = [line for run in history for line in _unused(before, after, run, pairs, allowed)]
    return Comparison(before.path, after.path, threshold, cases, unused)


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
        return Compared(one, other, bars=[_why_missing(without, row)])
    ours, theirs = before.conditions(one), after.conditions(other)
    bars = differing(ours, theirs, barring(allowed))
    for run, row in ((before, one), (after, other)):
        bars += [f"{run.path}: {words}" for words in _disqualified(row)]
        if len(row.measured) < 2:
            bars.append(f"{run.path}: one process, and noise shows from two on; measure more")
    return Compared(one, other, bars, differing(ours, theirs, others(allowed)))


def _disqualified(row: Row) -> list[str]:
    return [f"{mark}: {DISQUALIFYING[mark]}" for mark in row.marks if mark in DISQUALIFYING]


def _why_missing(run: MeasuredRun, row: Row) -> str:
    wanted = same_but_sampling(row.case)
    cases = [same_but_sampling(each.case) for each in run.rows]
    if wanted in cases:
        same = run.rows[cases.index(wanted)]
        return f"{run.path}: {same.outcome}{': ' if same.reason else ''}{same.reason}"
    if any(replace(case, graph_digest=wanted.graph_digest) == wanted for case in cases):
        return f"{run.path} has another network by the name {row.case.workload}"
    return f"{run.path} has no such case"


def _noise_of_runs(
    before: MeasuredRun, runs: Collection[MeasuredRun], pair: Compared, allowed: Collection[str]
) -> Noise | None:
    """Return how much runs of a case differ, on logarithms, under the conditions of `before`."""
    if pair.before is None:
        return None
    of_case = [(run, row) for run in runs for row in _same_case(run, pair.before)]
    rates = [
        (run.about.created, math.log(row.rates.value))
        for run, row in of_case
        if row.rates and not _unlike(before, pair.before, run, row, allowed)
    ]
    return noise([rate for _, rate in sorted(rates)])


def _same_case(run: MeasuredRun, row: Row) -> list[Row]:
    wanted = same_but_sampling(row.case)
    return [each for each in run.measured.values() if same_but_sampling(each.case) == wanted]


def _unlike(before: MeasuredRun, own: Row, run: MeasuredRun, row: Row, allowed: Collection[str]) -> list[str]:
    """Return the reasons for which a row of a further run does not show how much runs of `own` differ."""
    return _disqualified(row) or differing(before.conditions(own), run.conditions(row), barring(allowed))


def _unused(
    before: MeasuredRun, after: MeasuredRun, run: MeasuredRun, pairs: Sequence[Compared], allowed: Collection[str]
) -> Iterator[str]:
    """Yield a sentence for each reason that keeps a run of the history from being used for some cases."""
    for which, other in (("second", after), ("first", before)):
        if run.key == other.key:
            yield f"--history {run.path} is the {which} run itself"
            return
    reasons: Counter[str] = Counter()
    for own in (pair.before for pair in pairs if pair.before):
        why = [_unlike(before, own, run, row, allowed) for row in _same_case(run, own)]
        if not why:
            reasons["it has no speed of it"] += 1
        elif all(why):
            reasons[why[0][0]] += 1
    for reason, count in reasons.items():
        yield f"--history {run.path} says nothing of {count} case{'s' if count > 1 else ''}: {reason}"
