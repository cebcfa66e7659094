"""How networks learnt: loss by step, accuracy by seconds, times to a target, and the trade-off of batch sizes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from reports.charts.html import Body, Content, folded, listing, small, table, tag
from reports.charts.html import spread as ranged
from reports.charts.lines import Line, Lines, thinned
from reports.pages.run import Report, Section
from suite.analysis.learning import AGREEING_STEPS, Learnt
from suite.analysis.panels import SHOWN, Name, beside_others, common, kept_whole, labels, varying
from suite.analysis.rows import Row
from suite.analysis.stats import Spread, spread
from suite.analysis.wording import accuracy, listed, middle, number, scientific, whole_number
from suite.contracts.case import Case
from suite.text import grouped

BRIEF = 2  # epochs: so few are trained for their times, not for what is learnt
DRAWN, OPEN = 6, 16  # charts and trainings that are not folded away


@dataclass(frozen=True)
class TradeOff:
    """Trainings that differ in their seed, or in nothing but the process."""

    name: Name
    rows: list[Row]
    lessons: list[Learnt]

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def seconds(self) -> Spread | None:
        return spread([lesson.seconds for lesson in self.lessons])

    @property
    def best(self) -> Spread | None:
        return spread([lesson.best for lesson in self.lessons])

    @property
    def epoch(self) -> Spread | None:
        """The epoch in which the target was reached, over those that reached it."""
        return spread([lesson.target_epoch for lesson in self.lessons])

    @property
    def after(self) -> Spread | None:
        return spread([lesson.target_seconds for lesson in self.lessons])

    @property
    def joules(self) -> Spread | None:
        """The energy of training until the target was reached."""
        return spread([lesson.target_joules for lesson in self.lessons])

    @property
    def mebibytes(self) -> Spread | None:
        """The most memory that a rank held."""
        return spread([max(row.memory) / 2**20 if row.memory else None for row in self.rows])


@dataclass(frozen=True)
class Lessons:
    """Rows that learnt the same: one network, one data set."""

    title: str
    rows: list[Row]

    @cached_property
    def trade_offs(self) -> list[TradeOff]:
        """A group for rows that differ in their seeds alone.

        Where none has several trainings, only those that were tried with several batches, for more than two epochs.
        """
        groups = grouped(self.rows, lambda row: replace(row.case, seed=0).id)
        called = labels([replace(members[0].case, seed=0) for members in groups.values()])
        found = [
            TradeOff(name, members, [lesson for row in members for lesson in row.lessons])
            for name, members in zip(called, groups.values(), strict=True)
        ]
        if any(len(one.lessons) > 1 for one in found):
            return found
        return [one for group in by_series(found) for one in group if one.lessons and one.case.training.epochs > BRIEF]

    @property
    def answers(self) -> list[str]:
        """The soonest batch at the target and the most accurate, of every series with several trainings."""
        series = [group for group in by_series(self.trade_offs) if any(len(one.lessons) > 1 for one in group)]
        return [_answer(name, group) for name, group in zip(_called(series), series, strict=True)]

    @property
    def apart(self) -> tuple[float, list[str]] | None:
        """The largest distance of adapters' losses where one device takes the same steps, and those adapters."""
        single = [row for row in beside_others(self.rows)[0] if not row.several_devices]
        alike = grouped(single, lambda row: (*same_steps(row.case).values(), row.case.precision, row.case.seed))
        pairs = [
            (group[0], row) for group in alike.values() for row in group if row.case.adapter != group[0].case.adapter
        ]
        found = [(row.lessons[0].distance(first.lessons[0]), (first, row)) for first, row in pairs]
        there = [(distance, rows) for distance, rows in found if distance is not None]
        if not there:
            return None
        cases = [row.case for _, rows in there for row in rows]
        return max(distance for distance, _ in there), sorted({name.title for name in labels(cases)})

    @property
    def compared(self) -> list[tuple[Name, Row, float | None]]:
        """(Name, row, the largest difference of its losses from the first row with the same steps)."""
        first: dict[tuple[object, ...], Row] = {}
        found = []
        rows = self.rows[:SHOWN]
        for name, row in zip(labels([row.case for row in rows]), rows, strict=True):
            other = first.setdefault((*same_steps(row.case).values(), row.case.seed), row)
            found.append((name, row, None if other is row else row.lessons[0].distance(other.lessons[0])))
        return found


def lessons_of(rows: Iterable[Row]) -> list[Lessons]:
    """Return every row that learnt, grouped."""
    groups = grouped((row for row in rows if row.lessons), lambda row: f"{row.case.workload} on {row.case.data_name}")
    return [Lessons(title, group) for title, group in groups.items()]


def same_steps(case: Case) -> dict[str, str]:
    """Return what decides which samples a step takes and what it does with them, the seed aside."""
    return {
        "batch": f"batch {case.global_batch} of all devices",
        "repeat": f"{case.input.repeat}× data",
        "augment": f"{case.input.augment} crop",
        "held out": f"{case.training.held_out:g} held out",
        "optimiser": ", ".join(filter(None, (f"{case.optimiser} at {case.lr:g}", case.schedule.words))),
        "betas": f"with {case.beta1:g}, {case.beta2:g}, {case.epsilon:g}, {case.weight_decay:g}",
    }


def learning(report: Report) -> Section | None:
    """Return the curves and the trade-offs of every training."""
    every = lessons_of(report.rows)
    if not every:
        return None
    body: list[Content] = []
    heads = "Case | epochs | all epochs, s | last loss | best accuracy! | target | reached in epoch | after, s"
    heads += " | loss off by"
    for lesson in every:
        body += [
            *_trade_off(report, lesson),
            tag("h3", f"Curves: {lesson.title}"),
            report.cut(lesson.rows, "trainings"),
        ]
        body += report.few("learning", _curves(lesson), DRAWN, "curves")
        lines: list[list[Content]] = []
        for name, row, distance in lesson.compared:
            one = row.lessons[0]
            cells = [report.head(name, row), str(len(one.epochs)), number(one.seconds), number(one.epochs[-1].loss)]
            cells += [accuracy(one.best), f"{one.target:g}", str(one.target_epoch or "never")]
            lines.append([*cells, number(one.target_seconds), "" if distance is None else scientific(distance)])
        title = f"Every training: {lesson.title}"
        whole = table(title, heads, Body(lines, lesson.title, common([row.case for row in lesson.rows])))
        body.append(folded(title, whole, open_=len(lines) <= OPEN))
    title, also = headline(every)
    steps = f"over their first {AGREEING_STEPS} steps"
    alike = [
        f"{one.title}: {steps}, the losses of {listed(one.apart[1])} differ by {scientific(one.apart[0])} at most."
        for one in every
        if one.apart
    ]
    answers = [*alike, *(f"{one.title}: {answer}" for one in every for answer in one.answers)]
    return Section("learning", title, body, also, answers, _DEFINITIONS, "Learning")


_DEFINITIONS = (
    "Whole epochs from the same weights, over the same samples in the same order. After each epoch the network is "
    "tested on samples that were held out; the seconds do not include the test. They include reading the losses, so "
    "these speeds are not those of the native pass. Loss off by: the largest difference over the first 50 steps from "
    "the first row that takes the same steps (the same samples over all devices, at the same learning rate). Medians "
    "over trainings (seeds and processes); small numbers: the least and the most, or how many trainings reached the "
    "target. Memory: the most that a rank held, on its devices where the framework reports it, else in its whole "
    "process. A long curve is drawn by 300 of its points."
)


def headline(every: Sequence[Lessons]) -> tuple[str, str]:
    """Return the batch that is soonest; else how far frameworks' losses agree; else the best accuracy."""
    reached = [
        (one.after.value, lesson, one)
        for lesson in every
        for group in by_series(lesson.trade_offs)
        for one in group
        if one.after and one.after.of == len(one.lessons) > 1
    ]
    if reached:
        seconds, lesson, one = min(reached, key=lambda each: each[0])
        title = f"Batch {one.case.global_batch} is soonest at {one.case.training.target:g}: {number(seconds)} s"
        return title, f"{lesson.title}, {one.name.words}."
    agreeing = [(lesson, lesson.apart) for lesson in every if lesson.apart]
    if agreeing:
        lesson, apart = max(agreeing, key=lambda pair: pair[1][0] if pair[1] else 0.0)
        assert apart
        agree = f"agree to {scientific(apart[0])}" if apart[0] else "are equal"
        also = f"{lesson.title}, over the first {AGREEING_STEPS} steps: {listed(apart[1])}."
        return f"The losses of {len(apart[1])} frameworks {agree}", also
    known = [
        (lesson.best, row) for one in every for row in one.rows for lesson in row.lessons if lesson.best is not None
    ]
    if not known:
        return "Learning", ""
    best, row = max(known, key=lambda each: each[0])
    (name,) = labels([row.case])
    return f"The best accuracy is {accuracy(best)}", f"{name.words}, {row.case.workload}."


def _trade_off(report: Report, lesson: Lessons) -> list[Content]:
    found = lesson.trade_offs
    if not found:
        return []
    parts: list[Content] = [tag("h3", f"The trade-off: {lesson.title}"), report.drawn("learning", _by_batch(lesson))]
    parts.append(listing(lesson.answers))
    series = by_series(found)
    if series:
        batches = sorted({one.case.global_batch for group in series for one in group})
        training = series[0][0].case.training
        measures: list[tuple[str, Callable[[TradeOff], Content]]] = [
            (f"time of {training.epochs} epochs, s", lambda one: ranged(one.seconds)),
            (f"epoch in which {training.target:g} is reached", _epoch),
            (f"time to {training.target:g}, s", lambda one: ranged(one.after)),
            ("best accuracy", lambda one: ranged(one.best, accuracy)),
            ("memory, MiB", lambda one: middle(one.mebibytes)),
        ]
        bodies = []
        for name, group in zip(_called(series), series, strict=True):
            there = {one.case.global_batch: one for one in group}
            lines = [[words, *(of(there[at]) if at in there else "" for at in batches)] for words, of in measures]
            bodies.append(Body(lines, name))
        parts.append(table("By batch", " | ".join(["Batch, all devices together", *map(str, batches)]), *bodies))
    alone = [one for one in found if one.name not in {each.name for group in series for each in group}]
    if alone:
        lines = []
        for one in alone:
            reached = f"{one.epoch.of if one.epoch else 0} of {len(one.lessons)}"
            cells = [one.name.words, ranged(one.seconds), f"{one.case.training.target:g}", reached]
            cells += [ranged(one.epoch, whole_number), ranged(one.after), ranged(one.best, accuracy)]
            lines.append([*cells, str(len({row.case.seed for row in one.rows})), str(len(one.lessons))])
        heads = "Case | all epochs, s! | target | reached | in epoch | after, s! | best accuracy! | seeds | trainings"
        parts.append(table("Trainings", heads, Body(lines)))
    return parts


def _epoch(one: TradeOff) -> Content:
    if one.epoch is None:
        return "never"
    some = small(f"{one.epoch.of} of {len(one.lessons)}") if one.epoch.of < len(one.lessons) else None
    return [ranged(one.epoch, whole_number), some]


def _answer(name: str, group: Sequence[TradeOff]) -> str:
    there = [(one.after, one) for one in group if one.after and one.after.of == len(one.lessons)]
    best, finest = max(((one.best, one) for one in group if one.best), key=lambda pair: pair[0].value)
    finest_of_all = f"the best accuracy is {best.value:.4f}, with batch {finest.case.batch}"
    target = group[0].case.training.target
    if not there:
        return f"{name}: no batch reached {target:g} in every training; {finest_of_all}."
    after, soonest = min(there, key=lambda pair: pair[0].value)
    alike = [str(one.case.batch) for other, one in there if one is not soonest and after.overlaps(other)]
    others = f" (no detectable difference from batch {listed(alike)})" if alike else ""
    when = f"after {number(after.value)} s, in epoch {soonest.epoch.value if soonest.epoch else 0:g}"
    return f"{name} reaches {target:g} soonest with batch {soonest.case.batch}, {when}{others}; {finest_of_all}."


def by_series(found: Iterable[TradeOff]) -> list[list[TradeOff]]:
    """Return those that differ in their batch alone, in its order; only where there are several."""
    series = grouped(found, lambda one: replace(one.case, seed=0, batch=1, lr=0.0).id)
    ordered = (sorted(group, key=lambda one: one.case.global_batch) for group in series.values())
    return [group for group in ordered if len(group) > 1]


def _called(series: Sequence[Sequence[TradeOff]]) -> list[str]:
    return [name.words for name in labels([replace(group[0].case, seed=0, batch=1) for group in series])]


def _by_batch(lesson: Lessons) -> list[Lines]:
    """Return time to the target, best accuracy, time of all epochs and memory by batch."""
    found = lesson.trade_offs
    rows, warning = beside_others([row for one in found for row in one.rows])
    series = by_series(kept_whole(found, rows, lambda one: one.rows))
    if not series:
        return []
    measures: list[tuple[str, str, Callable[[TradeOff], Spread | None]]] = [
        (f"Time to an accuracy of {found[0].case.training.target:g}", "seconds of training", lambda one: one.after),
        ("Best accuracy", "accuracy", lambda one: one.best),
        ("Time of all epochs", "seconds of training", lambda one: one.seconds),
        ("Memory", "MiB that a rank held at most", lambda one: one.mebibytes),
    ]
    ticks = {float(batch): str(batch) for batch in sorted({one.case.global_batch for group in series for one in group})}
    across, charts = "batch, all devices together", []
    for what, up, value in measures:
        lines = [
            Line.of(name, [one.case.global_batch for one in group], [value(one) for one in group])
            for name, group in zip(_called(series), series, strict=True)
        ]
        if any(line.points for line in lines):
            title, setting = f"{what}, by batch", f"{lesson.title} · {what.lower()}"
            charts.append(Lines(title, setting, lines, across, up, "x", up != "accuracy", ticks, warning=warning))
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
        for name, row in zip(labels([row.case for row in rows]), rows, strict=True):
            learnt = row.lessons[0]
            steps.append(Line(name.words, thinned(learnt.steps), thinned(learnt.losses)))
            ends = list(accumulate(one.seconds for one in learnt.epochs))
            epochs.append(Line(name.words, ends, [one.accuracy for one in learnt.epochs], dots=True))
        if steps:
            charts.append(Lines("Loss by step", f"{setting} · loss by step", steps, "step", "loss", warning=warning))
            title, setting, axes = "Accuracy by seconds of training", f"{setting} · accuracy by seconds", "accuracy"
            charts.append(Lines(title, setting, epochs, "seconds of training", axes, from_zero=False, warning=warning))
    return charts
