"""One training by several strategies of exchanging gradients: how fast, how stale, and how far it came.

Trainings with a straggler: the time to a loss by the share of its time that it loses; where strategies cross.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean

from suite.analysis.leaders import Against, against_fastest
from suite.analysis.learning import WINDOW, Curve, Learnt, Staleness, curve, joined_staleness, noted, reached, smoothed
from suite.analysis.rows import Row
from suite.analysis.stats import Spread, centre, spread
from suite.contracts.case import Case, Input, Sampling, Training
from suite.groups import grouped


@dataclass(frozen=True)
class Variant:
    """One adapter's strategy with its knobs; its rows differ in their seeds alone."""

    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    speed: Row | None  # the same case's native pass, where the run has it
    against: Against | None  # among the synchronous ones whose speeds may be compared; None where there are no two
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
        """Whether nothing speaks against any of its rows."""
        return all(row.sound for row in self.rows)


@dataclass(frozen=True)
class Exchange:
    """Variants of one training on as many devices."""

    variants: tuple[Variant, ...]
    samples: float  # the most that every training has seen
    seconds: float | None  # the most that every training has taken; None: the records kept no seconds


def exchanges(rows: Iterable[Row]) -> list[Exchange]:
    """Every training on several devices that the run did in several variants."""
    every = list(rows)
    found = grouped((row for row in every if row.lessons and row.several_devices), lambda row: same_training(row.case))
    several = [group for group in found.values() if len({_strategy_of(row.case) for row in group}) > 1]
    speeds = grouped((row for row in every if row.rates and several), lambda row: _unhurried(row.case).id)
    return [_exchange(group, speeds) for group in several]


def same_training(case: Case) -> tuple[object, ...]:
    """What the variants of one training share: the network, its data, its steps, its devices."""
    read = {key: value for key, value in asdict(case.input).items() if key in ("repeat", "augment")}
    return (
        *(case.workload, case.graph_digest, case.data, *read.values(), case.precision),
        *(case.optimiser, case.lr, case.momentum, case.beta1, case.weight_decay, case.batch, case.training),
        *(case.schedule, case.straggler),
        *(case.placement.device, case.placement.nodes, case.placement.device_count, case.placement.threads),
    )


def _strategy_of(case: Case) -> tuple[str, str, str]:
    """A knob may choose how gradients are exchanged, too."""
    return case.adapter, case.strategy, str(sorted(case.knobs.items(), key=str))


def _exchange(group: list[Row], measured: Mapping[str, list[Row]]) -> Exchange:
    members = grouped(group, lambda row: replace(row.case, seed=0).id)
    curves = {id_: _curves(rows) for id_, rows in members.items()}
    of_all = [one for several in curves.values() for one in several]
    samples = min(one.samples[-1] for one in of_all)
    seconds = min(one.seconds[-1] for one in of_all) if all(one.seconds for one in of_all) else None
    speeds = {id_: _speed(rows[0].case, measured) for id_, rows in members.items()}
    compared = {id_: row.rates for id_, row in speeds.items() if row and row.rates and row.comparable}
    synchronous = {id_: rates for id_, rates in compared.items() if all(row.synchronous for row in members[id_])}
    verdicts = against_fastest(synchronous) if len(synchronous) > 1 else {}
    variants = tuple(
        _variant(rows, curves[id_], speeds[id_], verdicts.get(id_), samples, seconds) for id_, rows in members.items()
    )
    return Exchange(variants, samples, seconds)


def _variant(
    rows: list[Row],
    curves: list[Curve],
    speed: Row | None,
    against: Against | None,
    samples: float,
    seconds: float | None,
) -> Variant:
    lessons = [lesson for row in rows for lesson in row.lessons]
    return Variant(
        rows=tuple(rows),
        curves=tuple(curves),
        speed=speed,
        against=against,
        after_samples=spread([reached(one.samples, one.losses, samples, WINDOW * samples) for one in curves]),
        after_seconds=spread(
            [reached(one.seconds, one.losses, seconds, WINDOW * seconds) for one in curves] if seconds else []
        ),
        seen=spread([_seen(one, seconds) for one in curves] if seconds else []),
        accuracy=spread([lesson.epochs[-1].accuracy for lesson in lessons]),
        rate=spread([sum(epoch.samples for epoch in lesson.epochs) / lesson.seconds for lesson in lessons]),
        staleness=joined_staleness([row.staleness for row in rows if row.staleness]),
    )


def _curves(rows: list[Row]) -> list[Curve]:
    return [curve(lesson, row.case.global_batch) for row in rows for lesson in row.lessons]


def _seen(one: Curve, seconds: float) -> float:
    return max(
        (samples for samples, then in zip(one.samples, one.seconds, strict=True) if then <= seconds), default=0.0
    )


def _speed(case: Case, measured: Mapping[str, list[Row]]) -> Row | None:
    """The row that measured the speed of this very training, if there is one; from disk rather than synthetic data."""
    there = measured.get(_unhurried(case).id, [])
    return max(there, key=lambda row: (row.case.data == case.data, row.case.input == case.input), default=None)


def _unhurried(case: Case) -> Case:
    """The case less what tells a training from a measurement of its speed."""
    return replace(case, data="", input=Input(), readers=0, seed=0, passes=(), sampling=Sampling(), training=Training())


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
