"""How networks learnt: loss by step, accuracy by seconds, times to a target, and the trade-off of batch sizes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from stagebench.reports.charts.html import Body, Cells, Content, folded, listing, small, table, tag
from stagebench.reports.charts.html import spread as ranged
from stagebench.reports.charts.lines import Line, Lines, thinned
from stagebench.reports.pages.run import Report, Section, alike, named
from stagebench.suite.analysis.learning import AGREEING_STEPS, Learnt
from stagebench.suite.analysis.panels import SHOWN, beside_others, clipping, common, kept_whole, labels, varying
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Spread, spread
from stagebench.suite.analysis.wording import accuracy, listed, middle, number, scientific, whole_number
from stagebench.suite.contracts.case import Case
from stagebench.suite.text import grouped

BRIEF = 2  # epochs: so few are trained for their times, not for what is learnt
DRAWN, OPEN = 6, 16  # charts and trainings that are not folded away


class Trained(NamedTuple):
    """Trainings of one setting on as many devices, over seeds and processes."""

    rows: Sequence[Row]
    name: str = ""

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def devices(self) -> int:
        return self.case.placement.device_count

    @property
    def lessons(self) -> list[Learnt]:
        return [lesson for row in self.rows for lesson in row.lessons]

    def over(self, value: Callable[[Learnt], float | None]) -> Spread | None:
        """Return the spread of a value of each training, over those that have it."""
        return spread([value(lesson) for lesson in self.lessons])

    @property
    def seconds(self) -> Spread | None:
        return self.over(lambda one: one.seconds)

    @property
    def best(self) -> Spread | None:
        return self.over(lambda one: one.best)

    @property
    def after(self) -> Spread | None:
        """The seconds until the target was reached, over the trainings that reached it."""
        return self.over(lambda one: one.target_seconds)

    @property
    def reached(self) -> Spread | None:
        """The seconds until the target, where every training reached it."""
        return self.after if self.after and self.after.of == len(self.lessons) else None

    @property
    def epoch(self) -> Spread | None:
        """The epoch in which the target was reached, over the trainings that reached it."""
        return self.over(lambda one: one.target_epoch)

    def took(self, which: int) -> Spread | None:
        """Return the seconds of the epoch of that number, from 1, also where another program printed them."""
        return spread([seconds for seconds, _ in self._epochs(which)])

    def rate(self, which: int) -> Spread | None:
        """Return the samples/s of the epoch of that number."""
        return spread([samples / seconds for seconds, samples in self._epochs(which)])

    def _epochs(self, which: int) -> list[tuple[float, float]]:
        every = [tuple((one.seconds, float(one.samples)) for one in lesson.epochs) for lesson in self.lessons]
        every += [times for row in self.rows for times in row.published]
        return [times[which - 1] for times in every if len(times) >= which]

    @property
    def mebibytes(self) -> Spread | None:
        """The most memory that a rank held."""
        return spread([max(row.memory) / 2**20 if row.memory else None for row in self.rows])


def trained(rows: Iterable[Row]) -> list[Trained]:
    """Return the trainings that differ in more than their seeds, each with its name."""
    groups = [Trained(members) for members in grouped(rows, lambda row: row.case.on(seed=0).id).values()]
    return [Trained(one.rows, name.words) for name, one in named(groups, seed=0)]


@dataclass(frozen=True)
class Lessons:
    """Rows that learnt the same: one network, one data set."""

    title: str
    rows: list[Row]

    @cached_property
    def trade_offs(self) -> list[Trained]:
        """The trainings over seeds.

        Where none has several, only those that were tried with several batches, for more than two epochs.
        """
        found = trained(self.rows)
        if any(len(one.lessons) > 1 for one in found):
            return found
        return [one for group in by_series(found) for one in group if one.lessons and one.case.training.epochs > BRIEF]

    @property
    def answers(self) -> list[str]:
        """The soonest batch at the target and the most accurate, of every series with several trainings."""
        series = [group for group in by_series(self.trade_offs) if any(len(one.lessons) > 1 for one in group)]
        return [_answer(name, group) for name, group in _called(series)]

    @property
    def apart(self) -> tuple[float, list[str]] | None:
        """The largest distance of adapters' losses where one device takes the same steps, and those adapters."""
        single = [row for row in beside_others(self.rows)[0] if not row.several_devices]
        alike = grouped(single, lambda row: (*same_steps(row.case).values(), row.case.precision, row.case.seed))
        pairs = ((first, row) for first, *others in alike.values() for row in others)
        pairs = ((first, row) for first, row in pairs if row.case.adapter != first.case.adapter)
        found = [(row.lessons[0].distance(first.lessons[0]), (first, row)) for first, row in pairs]
        there = [(distance, rows) for distance, rows in found if distance is not None]
        cases = [row.case for _, rows in there for row in rows]
        most = max((distance for distance, _ in there), default=0.0)
        return (most, sorted({name.title for name in labels(cases)})) if there else None


def same_steps(case: Case) -> dict[str, str]:
    """Return what decides which samples a step takes and what it does with them, the seed aside."""
    return {
        "batch": f"batch {case.global_batch} of all devices",
        "repeat": f"{case.input.repeat}× data",
        "augment": f"{case.input.augment} crop",
        "held out": f"{case.training.held_out:g} held out",
        "optimiser": ", ".join(filter(None, (f"{case.optimiser} at {case.lr:g}", clipping(case), case.schedule.words))),
        "betas": f"with {case.beta1:g}, {case.beta2:g}, {case.epsilon:g}, {case.weight_decay:g}",
    }


def learning(report: Report) -> Section | None:
    """Return the curves and the trade-offs of every training."""
    learnt = (row for row in report.rows if row.lessons)
    groups = grouped(learnt, lambda row: f"{row.case.workload} on {row.case.data_name}")
    if not groups:
        return None
    every = [Lessons(title, group) for title, group in groups.items()]
    body: Cells = []
    heads = "Case | epochs | all epochs, s | last loss | best accuracy! | target | reached in epoch | after, s"
    heads += " | loss off by"
    for lesson in every:
        body += [_trade_off(report, lesson), tag("h3", f"Curves: {lesson.title}"), report.cut(lesson.rows, "trainings")]
        body += report.few("learning", _curves(lesson), DRAWN, "curves")
        lines: list[Cells] = []
        first: dict[tuple[object, ...], Row] = {}
        for name, row in named(lesson.rows[:SHOWN]):
            other = first.setdefault((*same_steps(row.case).values(), row.case.seed), row)
            one = row.lessons[0]
            off = "" if other is row or (far := one.distance(other.lessons[0])) is None else scientific(far)
            cells = [report.head(name, row), str(len(one.epochs)), number(one.seconds), number(one.epochs[-1].loss)]
            cells += [accuracy(one.best), f"{one.target:g}", str(one.target_epoch or "never")]
            lines.append([*cells, number(one.target_seconds), off])
        title = f"Every training: {lesson.title}"
        whole = table(title, heads, Body(lines, lesson.title, common([row.case for row in lesson.rows])))
        body.append(folded(title, whole, open_=len(lines) <= OPEN))
    title, also = headline(every)
    answers = [
        f"{one.title}: over their first {AGREEING_STEPS} steps, the losses of {listed(one.apart[1])} differ by "
        f"{scientific(one.apart[0])} at most."
        for one in every
        if one.apart
    ]
    answers += [f"{one.title}: {answer}" for one in every for answer in one.answers]
    return Section("learning", title, body, also, answers)


def headline(every: Sequence[Lessons]) -> tuple[str, str]:
    """Return the batch that is soonest; else how far frameworks' losses agree; else the best accuracy."""
    reached = [
        (one.reached.value, lesson, one)
        for lesson in every
        for group in by_series(lesson.trade_offs)
        for one in group
        if one.reached and one.reached.of > 1
    ]
    if reached:
        seconds, lesson, one = min(reached, key=lambda each: each[0])
        title = f"Batch {one.case.global_batch} is soonest at {one.case.training.target:g}: {number(seconds)} s"
        return title, f"{lesson.title}, {one.name}."
    agreeing = [(*lesson.apart, lesson.title) for lesson in every if lesson.apart]
    if agreeing:
        far, frameworks, title = max(agreeing, key=lambda each: each[0])
        agree = f"agree to {scientific(far)}" if far else "are equal"
        also = f"{title}, over the first {AGREEING_STEPS} steps: {listed(frameworks)}."
        return f"The losses of {len(frameworks)} frameworks {agree}", also
    known = ((lesson.best, row) for one in every for row in one.rows for lesson in row.lessons)
    best, row = max(known, key=lambda each: each[0])
    return f"The best accuracy is {accuracy(best)}", f"{labels([row.case])[0].words}, {row.case.workload}."


def _trade_off(report: Report, lesson: Lessons) -> Cells:
    found = lesson.trade_offs
    if not found:
        return []
    parts: Cells = [tag("h3", f"The trade-off: {lesson.title}"), report.drawn("learning", _by_batch(lesson))]
    parts.append(listing(lesson.answers, "ul.findings"))
    series = by_series(found)
    if series:
        batches = sorted({one.case.global_batch for group in series for one in group})
        training = series[0][0].case.training
        measures: tuple[tuple[str, Callable[[Trained], Content]], ...] = (
            (f"time of {training.epochs} epochs, s", lambda one: ranged(one.seconds)),
            (f"epoch in which {training.target:g} is reached", _epoch),
            (f"time to {training.target:g}, s", lambda one: ranged(one.after)),
            ("best accuracy", lambda one: ranged(one.best, accuracy)),
            ("memory, MiB", lambda one: middle(one.mebibytes)),
        )
        bodies = []
        for name, group in _called(series):
            there = {one.case.global_batch: one for one in group}
            lines = [[words, *(of(there[at]) if at in there else "" for at in batches)] for words, of in measures]
            bodies.append(Body(lines, name))
        parts.append(table("By batch", " | ".join(["Batch, all devices together", *map(str, batches)]), *bodies))
    lines = []
    in_series = {one.name for group in series for one in group}
    for one in (one for one in found if one.name not in in_series):
        reached = f"{one.epoch.of if one.epoch else 0} of {len(one.lessons)}"
        cells = [one.name, ranged(one.seconds), f"{one.case.training.target:g}", reached]
        cells += [ranged(one.epoch, whole_number), ranged(one.after), ranged(one.best, accuracy)]
        lines.append([*cells, str(len({row.case.seed for row in one.rows})), str(len(one.lessons))])
    heads = "Case | all epochs, s! | target | reached | in epoch | after, s! | best accuracy! | seeds | trainings"
    return [*parts, table("Trainings", heads, lines) if lines else None]


def _epoch(one: Trained) -> Content:
    if one.epoch is None:
        return "never"
    some = small(f"{one.epoch.of} of {len(one.lessons)}") if one.epoch.of < len(one.lessons) else None
    return [ranged(one.epoch, whole_number), some]


def _answer(name: str, group: Sequence[Trained]) -> str:
    there = [(one.reached, one) for one in group if one.reached]
    best, finest = max(((one.best, one) for one in group if one.best), key=lambda pair: pair[0].value)
    finest_of_all = f"the best accuracy is {best.value:.4f}, with batch {finest.case.batch}"
    target = group[0].case.training.target
    if not there:
        return f"{name}: no batch reached {target:g} in every training; {finest_of_all}."
    after, soonest = min(there, key=lambda pair: pair[0].value)
    others = alike(after, ((other, str(one.case.batch)) for other, one in there if one is not soonest), "batch ")
    when = f"after {number(after.value)} s, in epoch {soonest.epoch.value if soonest.epoch else 0:g}"
    return f"{name} reaches {target:g} soonest with batch {soonest.case.batch}, {when}{others}; {finest_of_all}."


def by_series(found: Iterable[Trained]) -> list[list[Trained]]:
    """Return those that differ in their batch alone, in its order; only where there are several."""
    series = grouped(found, lambda one: one.case.on(seed=0, batch=1, lr=0.0).id)
    ordered = (sorted(group, key=lambda one: one.case.global_batch) for group in series.values())
    return [group for group in ordered if len(group) > 1]


def _called(series: Sequence[list[Trained]]) -> list[tuple[str, list[Trained]]]:
    names = named((group[0] for group in series), seed=0, batch=1)
    return [(name.words, group) for (name, _), group in zip(names, series, strict=True)]


def _by_batch(lesson: Lessons) -> list[Lines]:
    """Return time to the target, best accuracy, time of all epochs and memory by batch."""
    found = lesson.trade_offs
    shown, warning = kept_whole(found, lambda one: one.rows)
    series = _called(by_series(shown))
    measures: list[tuple[str, str, Callable[[Trained], Spread | None]]] = [
        (f"Time to an accuracy of {found[0].case.training.target:g}", "seconds of training", lambda one: one.after),
        ("Best accuracy", "accuracy", lambda one: one.best),
        ("Time of all epochs", "seconds of training", lambda one: one.seconds),
        ("Memory", "MiB that a rank held at most", lambda one: one.mebibytes),
    ]
    batches, charts = [one.case.global_batch for _, group in series for one in group], []
    across = "batch, all devices together"
    for what, up, value in measures:
        lines = [Line.of(name, [one.case.global_batch for one in group], map(value, group)) for name, group in series]
        if any(line.points for line in lines):
            title, setting = f"{what}, by batch", f"{lesson.title} · {what.lower()}"
            charts.append(Lines(title, setting, lines, across, up, "x", up != "accuracy", batches, warning=warning))
    return charts


def _curves(lesson: Lessons) -> list[Lines]:
    """Return loss by step and accuracy by seconds of those that take the same steps, of one seed."""
    groups = grouped(lesson.rows[:SHOWN], lambda row: tuple(same_steps(row.case).values()))
    differing = varying([same_steps(members[0].case) for members in groups.values()])
    charts = []
    for members, words in zip(groups.values(), differing, strict=True):
        rows, warning = beside_others([row for row in members if row.case.seed == members[0].case.seed])
        setting = ", ".join([lesson.title, *words])
        steps, epochs = [], []
        for name, row in named(rows):
            learnt = row.lessons[0]
            steps.append(Line(name.words, thinned(learnt.steps), thinned(learnt.losses)))
            ends = list(accumulate(one.seconds for one in learnt.epochs))
            epochs.append(Line(name.words, ends, [one.accuracy for one in learnt.epochs], dots=True))
        if steps:
            unit = ", nats per token" * (rows[0].tokens > 0)
            axes = "step", f"loss{unit}"
            charts.append(Lines("Loss by step", f"{setting} · loss by step", steps, *axes, warning=warning))
            title, setting = "Accuracy by seconds of training", f"{setting} · accuracy by seconds"
            axes = "seconds of training", "accuracy" + " of tokens" * (rows[0].tokens > 0)
            charts.append(Lines(title, setting, epochs, *axes, from_zero=False, warning=warning))
    return charts
