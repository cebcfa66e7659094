"""The trade-off of batch sizes: seconds of all epochs, when the target was reached, how well it went; over seeds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from reports.figure import Chart, Figure
from reports.lines import Line, from_zero_up, lines_figure
from reports.names import names
from reports.panels import Panel, beside_others, kept_whole
from reports.text import listed, number
from suite.analysis.learning import Learnt
from suite.analysis.rows import Row
from suite.analysis.stats import Spread, spread
from suite.contracts.case import Case
from suite.text import grouped

ACCURACY = "accuracy"
BRIEF = 2  # epochs: so few are trained for their times, not for what is learnt


@dataclass(frozen=True)
class TradeOff:
    """Trainings that differ in their seed, or in nothing but the process."""

    name: str
    rows: list[Row]
    lessons: list[Learnt]

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def target(self) -> float:
        return self.case.training.target

    @property
    def seeds(self) -> int:
        return len({row.case.seed for row in self.rows})

    @property
    def seconds(self) -> Spread | None:
        return spread([lesson.seconds for lesson in self.lessons])

    @property
    def best(self) -> Spread | None:
        return spread([lesson.best for lesson in self.lessons])

    @property
    def epoch(self) -> Spread | None:
        """In which the target was reached, by those that reached it."""
        return spread([lesson.target_epoch for lesson in self.lessons])

    @property
    def after(self) -> Spread | None:
        return spread([lesson.target_seconds for lesson in self.lessons])

    @property
    def reached(self) -> int:
        """How many trainings reached the target."""
        return self.epoch.of if self.epoch else 0

    @property
    def mebibytes(self) -> Spread | None:
        """The most memory that a rank held."""
        return spread([max(row.memory) / 2**20 if row.memory else None for row in self.rows])


@dataclass(frozen=True)
class BatchTable:
    """A column a batch of all devices, and of each series its trade-off at every batch that it was tried with."""

    batches: list[int]
    series: list[tuple[str, list[TradeOff | None]]]
    epochs: int
    target: float


def trade_offs(rows: Iterable[Row]) -> list[TradeOff]:
    """A line for each group of rows that differ in their seeds alone.

    Where none has several trainings, only those that were tried with several batches, for more than two epochs.
    """
    groups = grouped(rows, lambda row: replace(row.case, seed=0).id)
    lessons = [[lesson for row in members for lesson in row.lessons] for members in groups.values()]
    called = names([replace(members[0].case, seed=0) for members in groups.values()])
    found = [TradeOff(*one) for one in zip(called, groups.values(), lessons, strict=True)]
    if any(len(several) > 1 for several in lessons):
        return found
    return [one for group in _by_series(found) for one in group if one.lessons and one.case.training.epochs > BRIEF]


def trade_off_charts(title: str, found: list[TradeOff]) -> list[Chart]:
    """Time to the target, best accuracy, time of all epochs and memory by batch; none where no line has two batches."""
    rows, warning = beside_others([row for one in found for row in one.rows])
    longer = _by_series(kept_whole(found, rows, lambda one: one.rows))
    if not longer:
        return []
    called = _called(longer)
    panel = Panel("", rows, called, "medians over trainings; bars from the least to the most", warning)
    target = found[0].target
    drawn: list[tuple[str, str, Callable[[TradeOff], Spread | None]]] = [
        (f"time to an accuracy of {target:g}", "seconds of training", lambda one: one.after),
        ("best accuracy", ACCURACY, lambda one: one.best),
        ("time of all epochs", "seconds of training", lambda one: one.seconds),
        ("memory", "MiB that a rank held at most", lambda one: one.mebibytes),
    ]
    return [
        (replace(panel, title=f"{title}: {what}, by batch"), _by_batch(longer, called, up, value))
        for what, up, value in drawn
        if any(value(one) for group in longer for one in group)
    ]


def batch_table(found: list[TradeOff]) -> BatchTable | None:
    """The measures over batch sizes; None where no series has two."""
    series = _by_series(found)
    if not series:
        return None
    batches = sorted({one.case.global_batch for group in series for one in group})
    by_batch = [{one.case.global_batch: one for one in group} for group in series]
    cells = [[group.get(batch) for batch in batches] for group in by_batch]
    training = series[0][0].case.training
    return BatchTable(batches, list(zip(_called(series), cells, strict=True)), training.epochs, training.target)


def without_series(found: list[TradeOff]) -> list[TradeOff]:
    """Those that stand in no such table."""
    there = {one.name for group in _by_series(found) for one in group}
    return [one for one in found if one.name not in there]


def answers(found: list[TradeOff]) -> list[str]:
    """For everything of which several batches were tried: which is soonest at the target, which goes best.

    Single trainings have no sentence.
    """
    series = [group for group in _by_series(found) if any(len(one.lessons) > 1 for one in group)]
    return [_answer(name, group) for name, group in zip(_called(series), series, strict=True)]


def _answer(name: str, group: list[TradeOff]) -> str:
    there = [(one.after, one) for one in group if one.after and one.after.of == len(one.lessons)]
    best, finest = max(((one.best, one) for one in group if one.best), key=lambda pair: pair[0].value)
    finest_of_all = f"the best accuracy is {best.value:.4f}, with batch {finest.case.batch}"
    if not there:
        return f"{name}: no batch reached {group[0].target:g} in every training; {finest_of_all}."
    after, soonest = min(there, key=lambda pair: pair[0].value)
    alike = [str(one.case.batch) for other, one in there if one is not soonest and after.overlaps(other)]
    beside = f" (no detectable difference from batch {listed(alike)})" if alike else ""
    when = f"after {number(after.value)} s, in epoch {soonest.epoch.value if soonest.epoch else 0:g}"
    first = f"reaches {group[0].target:g} soonest with batch {soonest.case.batch}, {when}{beside}"
    return f"{name} {first}; {finest_of_all}."


def _by_series(found: list[TradeOff]) -> list[list[TradeOff]]:
    """Those that differ in their batch alone, in its order; only where there are several."""
    series = grouped(found, lambda one: replace(one.case, seed=0, batch=1, lr=0.0).id)
    ordered = (sorted(group, key=lambda one: one.case.global_batch) for group in series.values())
    return [group for group in ordered if len(group) > 1]


def _called(series: list[list[TradeOff]]) -> list[str]:
    return names([replace(group[0].case, seed=0, batch=1) for group in series])


def _by_batch(
    series: list[list[TradeOff]], called: list[str], up: str, value: Callable[[TradeOff], Spread | None]
) -> Figure:
    lines = [
        Line.of(name, [one.case.global_batch for one in group], [value(one) for one in group])
        for name, group in zip(called, series, strict=True)
    ]
    figure = lines_figure(lines, "batch, all devices together", up, "lines+markers", log=True)
    return figure if up == ACCURACY else from_zero_up(figure)
