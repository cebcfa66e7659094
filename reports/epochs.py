"""The first and the second epoch, timed apart, over data repeats, batches, devices and strategies."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reports.bars import bars
from reports.figure import Chart, colour
from reports.names import common, names
from reports.panels import Panel, beside_others, kept_whole
from suite.analysis.learning import Epoch
from suite.analysis.rows import Row
from suite.analysis.stats import Interval, Spread, spread
from suite.contracts.case import Case
from suite.text import grouped


@dataclass(frozen=True)
class Timed:
    """One case, over its seeds and processes."""

    name: str
    rows: list[Row]

    @property
    def case(self) -> Case:
        return self.rows[0].case

    def epochs(self, number: int) -> list[Epoch]:
        """The epoch of that number, from 1, of every training that has it; -1: the last."""
        lessons = [lesson.epochs for row in self.rows for lesson in row.lessons]
        if number == -1:
            return [epochs[-1] for epochs in lessons]
        return [epochs[number - 1] for epochs in lessons if len(epochs) >= number]

    @property
    def count(self) -> int:
        return max(len(lesson.epochs) for row in self.rows for lesson in row.lessons)

    def seconds(self, number: int) -> Spread | None:
        return spread([epoch.seconds for epoch in self.epochs(number)])

    def rate(self, number: int) -> Spread | None:
        return spread([epoch.rate for epoch in self.epochs(number)])

    @property
    def opening(self) -> Spread | None:
        """Seconds to open the input."""
        return spread([lesson.opening_seconds for row in self.rows for lesson in row.lessons])

    def accuracy(self, number: int) -> Spread | None:
        """On what was held out, after an epoch."""
        return spread([epoch.accuracy for epoch in self.epochs(number)])

    @property
    def warming(self) -> float | None:
        """How many times longer the first epoch took than the second."""
        first, second = self.seconds(1), self.seconds(2)
        return first.value / second.value if first and second else None


@dataclass(frozen=True)
class Epochs:
    """All trainings on one data set."""

    title: str
    common: str
    timed: list[Timed]
    charts: list[Chart]

    @property
    def opened(self) -> bool:
        """Whether any of them says how long it took to open its input."""
        return any(one.opening for one in self.timed)


def epochs_of(rows: Iterable[Row]) -> list[Epochs]:
    """Every row that learnt, by network and data."""
    groups = grouped((row for row in rows if row.lessons), lambda row: f"{row.case.workload} on {row.case.data_name}")
    return [_epochs(title, members) for title, members in groups.items()]


def _epochs(title: str, members: list[Row]) -> Epochs:
    groups = list(grouped(members, lambda row: replace(row.case, seed=0).id).values())
    cases = [replace(rows[0].case, seed=0) for rows in groups]
    timed = [Timed(name, rows) for name, rows in zip(names(cases), groups, strict=True)]
    adapters = list(dict.fromkeys(case.adapter for case in cases))
    panels = grouped(timed, lambda one: (one.case.input.repeat, one.case.batch))
    drawn = [_chart(title, members, len(panels) > 1, adapters) for members in panels.values()]
    return Epochs(title, common(cases), timed, [chart for chart in drawn if chart])


def _chart(title: str, members: list[Timed], several: bool, adapters: list[str]) -> Chart | None:
    kept, warning = beside_others([row for one in members for row in one.rows])
    shown = [one for one in kept_whole(members, kept, lambda one: one.rows) if one.count > 1]
    if len(shown) < 2:
        return None
    cases = [replace(one.case, seed=0) for one in shown]
    if several:
        title += f", {cases[0].input.repeat}× data, batch {cases[0].batch} per device"  # noqa: RUF001
    panel = Panel(title, [one.rows[0] for one in shown], names(cases), common(cases), warning)
    shades = [colour(adapters.index(case.adapter)) for case in cases]
    first = [found.value if found else None for found in (one.rate(1) for one in shown)]
    second = [_interval(found) for found in (one.rate(2) for one in shown) if found]
    return panel, bars(panel, second, shades, "samples/s, second epoch", first, "first epoch")


def _interval(found: Spread) -> Interval:
    return Interval(found.value, found.low, found.high, found.of)
