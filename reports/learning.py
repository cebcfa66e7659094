"""How networks learnt: loss by step and accuracy by seconds, and the table of times to a target."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from reports.figure import Chart
from reports.lines import Line, lines_figure, thinned
from reports.names import common, names, varying
from reports.panels import Panel, beside_others
from reports.shown import Shown, shown
from reports.text import listed, scientific
from reports.tradeoff import BatchTable, TradeOff, answers, batch_table, trade_off_charts, trade_offs, without_series
from suite.analysis.learning import AGREEING_STEPS, Learnt
from suite.analysis.rows import Row
from suite.contracts.case import Case
from suite.text import grouped


@dataclass(frozen=True)
class Lessons:
    """Rows that learnt the same: one network, one data set."""

    title: str
    rows: list[Row]

    @property
    def common(self) -> str:
        return common([row.case for row in self.rows])

    @cached_property
    def shown(self) -> Shown:
        """Those that have a curve and a line each."""
        return shown(self.rows)

    @property
    def charts(self) -> list[Chart]:
        """Loss by step and accuracy by seconds of those that take the same steps, of one seed."""
        groups = grouped(self.shown.rows, lambda row: tuple(same_steps(row.case).values()))
        differing = varying([same_steps(members[0].case) for members in groups.values()])
        return [
            chart
            for members, words in zip(groups.values(), differing, strict=True)
            for chart in _charts(", ".join([self.title, *words]), members)
        ]

    @cached_property
    def trade_offs(self) -> list[TradeOff]:
        """What batch sizes and the like cost and bring, over seeds."""
        return trade_offs(self.rows)

    @property
    def by_batch(self) -> BatchTable | None:
        """The trade-offs as a table of batch sizes."""
        return batch_table(self.trade_offs)

    @property
    def others(self) -> list[TradeOff]:
        """Those of which one batch was tried."""
        return without_series(self.trade_offs)

    @property
    def answers(self) -> list[str]:
        """What the trade-off comes to, in sentences."""
        return answers(self.trade_offs)

    @property
    def alike(self) -> list[str]:
        """How far apart adapters' losses are where one device takes the same steps, in a sentence."""
        single = [row for row in beside_others(self.rows)[0] if not row.several_devices]
        alike = grouped(single, lambda row: (*same_steps(row.case).values(), row.case.precision, row.case.seed))
        pairs = [
            (group[0], row) for group in alike.values() for row in group if row.case.adapter != group[0].case.adapter
        ]
        apart = [(row.lessons[0].distance(first.lessons[0]), (first, row)) for first, row in pairs]
        there = [(distance, rows) for distance, rows in apart if distance is not None]
        if not there:
            return []
        adapters = sorted({row.case.adapter for _, rows in there for row in rows})
        most = scientific(max(distance for distance, _ in there))
        steps = f"over their first {AGREEING_STEPS} steps"
        return [f"{self.title}: {steps}, the losses of {listed(adapters)} differ by {most} at most."]

    @property
    def trade_off_charts(self) -> list[Chart]:
        """The same by batch size."""
        return trade_off_charts(self.title, self.trade_offs)

    @property
    def compared(self) -> list[tuple[str, Row, Learnt, float | None]]:
        """(name, row, training, largest difference of its losses over the first steps).

        From those of the first row that takes the same steps: the same samples, joined over
        all devices, at the same learning rate. None for that row itself.
        """
        first: dict[tuple[object, ...], Row] = {}
        found = []
        for name, row in zip(names([row.case for row in self.shown.rows]), self.shown.rows, strict=True):
            other = first.setdefault((*same_steps(row.case).values(), row.case.seed), row)
            distance = None if other is row else row.lessons[0].distance(other.lessons[0])
            found.append((name, row, row.lessons[0], distance))
        return found


def lessons_of(rows: Iterable[Row]) -> list[Lessons]:
    """Every row that learnt, grouped."""
    groups = grouped((row for row in rows if row.lessons), lambda row: f"{row.case.workload} on {row.case.data_name}")
    return [Lessons(title, group) for title, group in groups.items()]


def same_steps(case: Case) -> dict[str, str]:
    """In words: what decides which samples a step takes and what it does with them, the seed aside."""
    betas = f"{case.beta1:g}, {case.beta2:g}, {case.epsilon:g}, {case.weight_decay:g}"
    return {
        "batch": f"batch {case.global_batch} of all devices",
        "repeat": f"{case.input.repeat}× data",  # noqa: RUF001 - the sign is meant
        "augment": f"{case.input.augment} crop",
        "held out": f"{case.training.held_out:g} held out",
        "optimiser": ", ".join(filter(None, (f"{case.optimiser} at {case.lr:g}", case.schedule.words))),
        "betas": f"with {betas}",
    }


def _charts(title: str, members: list[Row]) -> list[Chart]:
    rows, warning = beside_others([row for row in members if row.case.seed == members[0].case.seed])
    if not rows:
        return []
    cases = [row.case for row in rows]
    panel = Panel(title, rows, names(cases), common(cases), warning)
    trained = list(zip(panel.names, [row.lessons[0] for row in rows], strict=True))
    steps = [Line(name, thinned(learnt.steps), thinned(learnt.losses)) for name, learnt in trained]
    epochs = [
        Line(name, list(accumulate(one.seconds for one in learnt.epochs)), [one.accuracy for one in learnt.epochs])
        for name, learnt in trained
    ]
    seconds = "seconds of training"
    return [
        (replace(panel, title=f"{title}: loss by step"), lines_figure(steps, "step", "loss")),
        (
            replace(panel, title=f"{title}: accuracy by {seconds}"),
            lines_figure(epochs, seconds, "accuracy", "lines+markers"),
        ),
    ]
