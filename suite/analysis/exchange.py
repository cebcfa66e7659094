"""One training by several strategies of exchanging gradients: how fast, how stale, and how far it came."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from suite.analysis.curves import WINDOW, Curve, curve, reached
from suite.analysis.leaders import Against, against_fastest
from suite.analysis.rows import Row
from suite.analysis.spread import Spread, spread
from suite.analysis.staleness import Staleness, joined
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
        staleness=joined([row.staleness for row in rows if row.staleness]),
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
