"""Trainings with a straggler: the time to a loss by the share of its time that it loses; where strategies cross."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean

from suite.analysis.curves import WINDOW, smoothed
from suite.analysis.exchange import same_training
from suite.analysis.learning import Learnt
from suite.analysis.notes import noted
from suite.analysis.rows import Row
from suite.analysis.spread import Spread, spread
from suite.analysis.stats import centre
from suite.contracts.case import Case


@dataclass(frozen=True)
class Slowed:
    """One strategy with its knobs, by the straggler's share; its rows differ in that and in their seeds."""

    rows: tuple[Row, ...]
    seconds: Mapping[float, Mapping[tuple[int, int], float]]  # to the loss, by share asked, then by seed and process
    shares: Mapping[float, Sequence[float]] = field(default_factory=dict)  # that the loads took, by share asked

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def synchronous(self) -> bool:
        return self.rows[0].synchronous

    @property
    def samples_per_update(self) -> int:
        """How many samples' gradients make up one change of the weights."""
        case = self.case
        if self.synchronous:
            return case.global_batch
        backups = int(case.knobs.get("backups", 0))
        return case.batch * (case.placement.device_count - backups if backups else 1)

    def taken(self, share: float) -> Spread | None:
        """Of the shares that the loads really took; None where no record says."""
        return spread(list(self.shares.get(share, ())))

    def spread(self, share: float) -> Spread | None:
        """Of the times over seeds."""
        return spread(list(self.seconds.get(share, {}).values()))

    def slowdown(self, share: float) -> float | None:
        """The time over that without a straggler, of the medians."""
        there, without = self.spread(share), self.spread(0.0)
        return there.value / without.value if there and without else None


@dataclass(frozen=True)
class Crossover:
    """The taken share beyond which a strategy is sooner at the loss than another; an end beyond those tried is None."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Gain:
    """How much sooner one strategy is at the loss than another, with one share of a straggler."""

    share: float  # asked
    taken: float  # by the loads, the mean of the two; the share asked where no record says
    mean: float  # over the seeds that both have, of the logarithm of the ratio of their times: above 0 it is sooner
    half: float | None  # of the mean's 95 % interval; None of a single seed

    @property
    def detectable(self) -> bool:
        """Whether the interval leaves no doubt which is sooner."""
        return self.half is not None and abs(self.mean) > self.half


@dataclass(frozen=True)
class Stragglers:
    """Variants of one training, all to the same loss."""

    variants: tuple[Slowed, ...]
    shares: tuple[float, ...]
    loss: float  # the lowest that every training reached


def stragglers(rows: Iterable[Row]) -> list[Stragglers]:
    """Every training that was done with several shares of a straggler, one of them perhaps none."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.lessons and row.several_devices and all(lesson.seconds_then for lesson in row.lessons):
            groups.setdefault(same_training(row.case.on(straggler=0.0)), []).append(row)
    return [_stragglers(group) for group in groups.values() if len({row.case.straggler for row in group}) > 1]


def _stragglers(rows: Sequence[Row]) -> Stragglers:
    loss = max(min(_curve(lesson)) for row in rows for lesson in row.lessons)
    variants: dict[str, list[Row]] = {}
    for row in rows:
        variants.setdefault(replace(row.case, seed=0, straggler=0.0).id, []).append(row)
    shares = tuple(sorted({row.case.straggler for row in rows}))
    return Stragglers(tuple(_slowed(members, loss) for members in variants.values()), shares, loss)


def _slowed(rows: list[Row], loss: float) -> Slowed:
    seconds: dict[float, dict[tuple[int, int], float]] = {}
    shares: dict[float, list[float]] = {}
    for row in rows:
        for process, lesson in enumerate(row.lessons):
            seconds.setdefault(row.case.straggler, {})[row.case.seed, process] = time_to(lesson, loss)
        notes = [process.about.notes.get("straggler") for process in row.processes]
        taken = [share for note in notes if (share := noted(note, "taken")) is not None]
        shares.setdefault(row.case.straggler, []).extend(taken)
    return Slowed(tuple(rows), seconds, shares)


def _curve(lesson: Learnt) -> list[float]:
    """The smoothed losses; what is no number never comes near one."""
    at = lesson.seconds_then
    found = smoothed(at, lesson.losses, WINDOW * at[-1])
    return [math.inf if loss is None else loss for loss in found]


def time_to(lesson: Learnt, loss: float) -> float:
    """Seconds of training until the smoothed loss is first that low; infinite where it never is."""
    both = zip(lesson.seconds_then, _curve(lesson), strict=True)
    return next((seconds for seconds, reached in both if reached <= loss), math.inf)


def crossover(one: Slowed, other: Slowed) -> Crossover | None:
    """The share from which `other` is sooner than `one`; None where there is none, or where it was sooner throughout.

    What it gains is drawn straight from share to share (those that the loads took): the crossover is where its mean
    passes 0, and the ends of its 95 % interval are where the mean's ends do.
    """
    known = [(gain.taken, gain.mean, gain.half) for gain in gains(one, other)]
    lines = [(share, mean, half) for share, mean, half in known if half is not None]
    value = _passes([(share, mean) for share, mean, _ in lines])
    if value is None:
        return None
    ends = (_passes([(share, mean + sign * half) for share, mean, half in lines]) for sign in (1, -1))
    return Crossover(value, *ends)


def gains(one: Slowed, other: Slowed) -> list[Gain]:
    """What `other` gains on `one`, by share; of those that both were trained with."""
    found = []
    for share in sorted(one.seconds.keys() & other.seconds.keys()):
        mine, theirs = one.seconds[share], other.seconds[share]
        pairs = [(mine[each], theirs[each]) for each in mine.keys() & theirs.keys()]
        if pairs and all(math.isfinite(time) for pair in pairs for time in pair):
            logarithms = [math.log(waiting / freer) for waiting, freer in pairs]
            half = centre(logarithms, 0).half_width() if len(pairs) > 1 else None
            taken = [load.value for load in (one.taken(share), other.taken(share)) if load]
            found.append(Gain(share, fmean(taken) if taken else share, fmean(logarithms), half))
    return found


def _passes(points: Sequence[tuple[float, float]]) -> float | None:
    """Where a line from point to point first rises above 0."""
    for (left, before), (right, after) in pairwise(points):
        if before <= 0.0 < after:
            return left + (right - left) * -before / (after - before)
    return None
