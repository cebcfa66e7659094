"""The trade-off of batch sizes: seconds of all epochs, when the target was reached, how well it went; over seeds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from reports.names import names
from suite.analysis.learning import Learnt
from suite.analysis.rows import Row


@dataclass(frozen=True)
class Spread:
    """The median of several trainings, and their ends."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TradeOff:
    """Trainings that differ in their seed, or in nothing but the process."""

    name: str
    seeds: int
    trainings: int
    seconds: Spread
    best: Spread
    reached: int  # of the trainings
    epoch: Spread | None  # of those that reached it
    after: Spread | None  # seconds


def trade_offs(rows: Iterable[Row]) -> list[TradeOff]:
    """A line for each group of rows that differ in their seeds alone, when some group has several trainings."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(replace(row.case, seed=0).id, []).append(row)
    if all(sum(len(row.lessons) for row in members) < 2 for members in groups.values()):
        return []
    called = names([replace(members[0].case, seed=0) for members in groups.values()])
    return [_trade_off(name, members) for name, members in zip(called, groups.values(), strict=True)]


def _trade_off(name: str, members: list[Row]) -> TradeOff:
    lessons: list[Learnt] = [lesson for row in members for lesson in row.lessons]
    reached = [lesson for lesson in lessons if lesson.target_epoch is not None]
    return TradeOff(
        name=name,
        seeds=len({row.case.seed for row in members}),
        trainings=len(lessons),
        seconds=_spread([lesson.seconds for lesson in lessons]),
        best=_spread([lesson.best for lesson in lessons]),
        reached=len(reached),
        epoch=_spread([float(lesson.target_epoch or 0) for lesson in reached]) if reached else None,
        after=_spread([lesson.target_seconds or 0.0 for lesson in reached]) if reached else None,
    )


def _spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))
