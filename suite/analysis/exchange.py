"""A training by several strategies of exchanging gradients: how fast, how stale, how far, and with a straggler."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from statistics import fmean
from typing import Any

from stagebench.suite.analysis.leaders import Against, against_fastest
from stagebench.suite.analysis.learning import (
    WINDOW,
    Curve,
    Learnt,
    Staleness,
    curve,
    joined_staleness,
    noted,
    reached,
    smoothed,
)
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Spread, centre, spread
from stagebench.suite.contracts.case import Case
from stagebench.suite.text import grouped
from stagebench.suite.worker.case_parts import Input, Sampling, Training

# The training that variants share: network, data, steps, devices.
SHARED = attrgetter(
    "workload",
    "graph_digest",
    "data",
    "input.repeat",
    "input.augment",
    "precision",
    "optimiser",
    "lr",
    "momentum",
    "beta1",
    "weight_decay",
    "clip_norm",
    "batch",
    "training",
    "schedule",
    "straggler",
    "placement.device",
    "placement.nodes",
    "placement.device_count",
    "placement.threads",
)
# A case without what tells a training from a measurement of its speed.
SPEED: dict[str, Any] = {
    "data": "",
    "input": Input(),
    "readers": 0,
    "seed": 0,
    "passes": (),
    "sampling": Sampling(),
    "training": Training(),
}


@dataclass(frozen=True)
class Variant:
    """A strategy of an adapter with its knobs; its rows differ only in their seeds."""

    rows: Sequence[Row]
    curves: Sequence[Curve]
    speed: Row | None  # the native pass of the equal case, if the run has it
    against: Against | None  # among the synchronous variants whose speeds may be compared; None of fewer than two
    after_samples: Spread | None  # the loss after the group's common samples
    after_seconds: Spread | None  # the loss after its common time
    seen: Spread | None  # samples by then
    accuracy: Spread | None  # of the last epoch
    rate: Spread | None  # samples/s while training, all epochs together
    staleness: Staleness | None

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def sound(self) -> bool:
        """True if nothing speaks against any of its rows."""
        return all(row.sound for row in self.rows)


@dataclass(frozen=True)
class Exchange:
    """Variants of one training on equally many devices."""

    variants: Sequence[Variant]
    samples: float  # the most that every training has seen
    seconds: float | None  # the most that every training has taken; None: the records kept no seconds


def exchanges(rows: Iterable[Row]) -> list[Exchange]:
    """Return every training on several devices that the run did in several variants."""
    rows = list(rows)
    trained = [row for row in rows if row.lessons and row.several_devices]
    several = []
    for group in grouped(trained, lambda row: SHARED(row.case)).values():
        # A knob may choose how gradients are exchanged, too.
        cases = [row.case for row in group]
        if len({(case.adapter, case.strategy, str(sorted(case.knobs.items(), key=str))) for case in cases}) > 1:
            several.append(group)
    speeds = grouped((row for row in rows if row.rates and several), lambda row: row.case.on(**SPEED).id)
    return [_exchange(group, speeds) for group in several]


def _exchange(group: list[Row], measured: Mapping[str, list[Row]]) -> Exchange:
    members = grouped(group, lambda row: replace(row.case, seed=0).id)
    every = [curve(lesson, row.case.global_batch) for row in group for lesson in row.lessons]
    samples = min(each.samples[-1] for each in every)
    seconds = min(each.seconds[-1] for each in every) if all(each.seconds for each in every) else None

    speeds: dict[str, Row] = {}
    comparable = {}
    for id_, rows in members.items():
        case = rows[0].case
        # The speed of this very training, rather read from disk than on synthetic data.
        if candidates := measured.get(case.on(**SPEED).id):
            speeds[id_] = max(candidates, key=lambda row: (row.case.data == case.data, row.case.input == case.input))
            rates = speeds[id_].rates
            if rates and speeds[id_].comparable and all(row.synchronous for row in rows):
                comparable[id_] = rates
    verdicts = against_fastest(comparable) if len(comparable) > 1 else {}

    variants = []
    for id_, rows in members.items():
        lessons = [lesson for row in rows for lesson in row.lessons]
        curves = [curve(lesson, rows[0].case.global_batch) for lesson in lessons]
        losses_then, samples_then = [], []
        if seconds:
            for each in curves:
                losses_then.append(reached(each.seconds, each.losses, seconds, WINDOW * seconds))
                seen = [count for count, then in zip(each.samples, each.seconds, strict=True) if then <= seconds]
                samples_then.append(max(seen, default=0.0))
        variant = Variant(
            rows=rows,
            curves=curves,
            speed=speeds.get(id_),
            against=verdicts.get(id_),
            after_samples=spread([reached(each.samples, each.losses, samples, WINDOW * samples) for each in curves]),
            after_seconds=spread(losses_then),
            seen=spread(samples_then),
            accuracy=spread([lesson.epochs[-1].accuracy for lesson in lessons]),
            rate=spread([sum(epoch.samples for epoch in lesson.epochs) / lesson.seconds for lesson in lessons]),
            staleness=joined_staleness([row.staleness for row in rows if row.staleness]),
        )
        variants.append(variant)
    return Exchange(variants, samples, seconds)


@dataclass(frozen=True)
class Slowed:
    """A strategy with its knobs, by the straggler's share; its rows differ only in that share and in their seeds."""

    rows: Sequence[Row]
    seconds: Mapping[float, Mapping[tuple[int, int], float]]  # to the loss, by planned share, then by seed and process
    shares: Mapping[float, Sequence[float]] = field(default_factory=dict)  # that the loads took, by planned share

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def synchronous(self) -> bool:
        return self.rows[0].synchronous

    @property
    def samples_per_update(self) -> int:
        """The number of samples whose gradients make up one change of the weights."""
        case = self.case
        if self.synchronous:
            return case.global_batch
        backups = int(case.knobs.get("backups", 0))
        return case.batch * (case.placement.device_count - backups if backups else 1)

    def taken(self, share: float) -> Spread | None:
        """Return the shares that the loads really took; None if no record has them."""
        return spread(list(self.shares.get(share, ())))

    def spread(self, share: float) -> Spread | None:
        """Return the times to the loss over seeds."""
        return spread(list(self.seconds.get(share, {}).values()))

    def slowdown(self, share: float) -> float | None:
        """Return the median time over the median time without a straggler."""
        slowed, without = self.spread(share), self.spread(0.0)
        return slowed.value / without.value if slowed and without else None


@dataclass(frozen=True)
class Crossover:
    """The taken share from which another strategy reaches the loss sooner; None: an end beyond the measured shares."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Gain:
    """How much sooner one strategy reaches the loss than another, at one share of a straggler."""

    share: float  # planned
    taken: float  # by the loads, the mean of the two; the planned share if no record has it
    mean: float  # over common seeds, of the logarithm of the ratio of their times: above 0 it is sooner
    half: float | None  # half of the mean's 95 % interval; None of a single seed

    @property
    def detectable(self) -> bool:
        """True if the interval leaves no doubt which is sooner."""
        return self.half is not None and abs(self.mean) > self.half


@dataclass(frozen=True)
class Stragglers:
    """Variants of one training, all to the same loss."""

    variants: Sequence[Slowed]
    shares: Sequence[float]
    loss: float  # the lowest that every training reached


def stragglers(rows: Iterable[Row]) -> list[Stragglers]:
    """Return every training that was measured with several shares of a straggler, one of them perhaps 0."""
    trained = [row for row in rows if row.lessons and row.several_devices]
    timed = [row for row in trained if all(lesson.seconds_then for lesson in row.lessons)]
    found = []
    for group in grouped(timed, lambda row: SHARED(row.case.on(straggler=0.0))).values():
        planned = sorted({row.case.straggler for row in group})
        if len(planned) < 2:
            continue
        loss = max(min(_curve(lesson)) for row in group for lesson in row.lessons)
        variants = []
        for rows in grouped(group, lambda row: replace(row.case, seed=0, straggler=0.0).id).values():
            seconds, shares = {}, {}
            for share, same in grouped(rows, lambda row: row.case.straggler).items():
                processes = [(row.case.seed, process) for row in same for process in row.processes]
                seconds[share] = {
                    (seed, process.repeat): time_to(process.learnt, loss)
                    for seed, process in processes
                    if process.outcome == "ok" and process.learnt
                }
                notes = [noted(process.about.notes.get("straggler"), "taken") for _, process in processes]
                shares[share] = [taken for taken in notes if taken is not None]
            variants.append(Slowed(rows, seconds, shares))
        found.append(Stragglers(variants, planned, loss))
    return found


def _curve(lesson: Learnt) -> list[float]:
    """Return the smoothed losses, with infinity for those that are not finite."""
    at = lesson.seconds_then
    return [math.inf if loss is None else loss for loss in smoothed(at, lesson.losses, WINDOW * at[-1])]


def time_to(lesson: Learnt, loss: float) -> float:
    """Return seconds of training until the smoothed loss is first that low; infinite if it never is."""
    points = zip(lesson.seconds_then, _curve(lesson), strict=True)
    return next((seconds for seconds, least in points if least <= loss), math.inf)


def crossover(one: Slowed, other: Slowed) -> Crossover | None:
    """Return the share from which `other` is sooner than `one`; None if it never is, or if it always was.

    Gains are connected by straight lines from share to share (those that the loads took). The crossover is the share at
    which the mean passes 0; its 95 % interval ends where the ends of the mean's interval do.
    """
    known = [(gain.taken, gain.mean, gain.half) for gain in gains(one, other) if gain.half is not None]
    value, low, high = (_zero([(share, mean + side * half) for share, mean, half in known]) for side in (0, 1, -1))
    return None if value is None else Crossover(value, low, high)


def gains(one: Slowed, other: Slowed) -> list[Gain]:
    """Return what `other` gains on `one`, by share, of shares that both were trained with."""
    found = []
    for share in sorted(one.seconds.keys() & other.seconds.keys()):
        ours, theirs = one.seconds[share], other.seconds[share]
        times = [(ours[key], theirs[key]) for key in ours.keys() & theirs.keys()]
        if not times or not all(math.isfinite(time) for pair in times for time in pair):
            continue
        logarithms = [math.log(our_time / their_time) for our_time, their_time in times]
        half = centre(logarithms).half_width() if len(times) > 1 else None
        loads = [load.value for load in (one.taken(share), other.taken(share)) if load]
        found.append(Gain(share, fmean(loads) if loads else share, fmean(logarithms), half))
    return found


def _zero(points: Sequence[tuple[float, float]]) -> float | None:
    """Return where a line from point to point first rises above 0."""
    for (left, before), (right, after) in pairwise(points):
        if before <= 0.0 < after:
            return left + (right - left) * -before / (after - before)
    return None
