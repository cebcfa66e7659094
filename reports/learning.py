"""How networks learnt: loss by step and accuracy by seconds, and the table of times to a target."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape

from reports.figure import Figure, axis, colour, layout
from reports.names import common, names
from reports.panels import Panel
from suite.analysis.learning import Learnt
from suite.analysis.rows import Row

Points = tuple[list[float], list[float | None]]


@dataclass(frozen=True)
class Lessons:
    """Rows that learnt the same: one network, one data set."""

    title: str
    common: str
    rows: list[Row]
    names: list[str]

    @property
    def charts(self) -> list[tuple[Panel, Figure]]:
        """Loss by step, accuracy by seconds."""
        drawn = (("loss by step", losses(self)), ("accuracy by seconds of training", accuracies(self)))
        return [(Panel(f"{self.title}: {what}", self.rows, self.names, self.common), figure) for what, figure in drawn]

    @property
    def lines(self) -> list[tuple[str, Learnt]]:
        """(name, the first process's training) of each row."""
        return [(name, row.lessons[0]) for name, row in zip(self.names, self.rows, strict=True)]

    @property
    def compared(self) -> list[tuple[str, Row, Learnt, float | None]]:
        """(name, row, training, largest difference of its losses over the first steps).

        From those of the first row that takes the same steps: the same samples, joined over
        all devices, at the same learning rate. None for that row itself.
        """
        first: dict[tuple[object, ...], Row] = {}
        found = []
        for name, row in zip(self.names, self.rows, strict=True):
            case = row.case
            other = first.setdefault((case.global_batch, case.lr, case.momentum, case.weight_decay, case.seed), row)
            distance = None if other is row else row.lessons[0].distance(other.lessons[0])
            found.append((name, row, row.lessons[0], distance))
        return found


def lessons_of(rows: Iterable[Row]) -> list[Lessons]:
    """Every row that learnt, grouped."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.lessons:
            groups.setdefault(f"{row.case.workload} on {row.case.data_name}", []).append(row)
    found = []
    for title, group in groups.items():
        cases = [row.case for row in group]
        found.append(Lessons(title, common(cases), group, names(cases)))
    return found


def losses(lessons: Lessons) -> Figure:
    """Loss by step."""
    return _curves(lessons, "step", "loss", lambda learnt: (list(learnt.steps), list(learnt.losses)), "lines")


def accuracies(lessons: Lessons) -> Figure:
    """Accuracy on what was held out, by seconds of training."""
    return _curves(lessons, "seconds of training", "accuracy", _accuracy, "lines+markers")


def _accuracy(learnt: Learnt) -> Points:
    seconds, total = [], 0.0
    for epoch in learnt.epochs:
        total += epoch.seconds
        seconds.append(total)
    return seconds, [epoch.accuracy for epoch in learnt.epochs]


def _curves(lessons: Lessons, across: str, up: str, points: Callable[[Learnt], Points], mode: str) -> Figure:
    traces = []
    for index, (name, learnt) in enumerate(lessons.lines):
        x, y = points(learnt)
        traces.append(
            {
                "type": "scatter",
                "mode": mode,
                "name": escape(name),
                "x": x,
                "y": y,
                "line": {"color": colour(index), "width": 1.5},
                "marker": {"size": 6},
                "hovertemplate": f"{escape(name)}<br>{across} %{{x:.4g}}: %{{y:.4g}}<extra></extra>",
            }
        )
    frame = layout(340)
    frame |= {"xaxis": axis(across), "yaxis": axis(up), "showlegend": True}
    frame |= {"legend": {"orientation": "h", "y": -0.22, "x": 0}, "margin": {"l": 60, "r": 16, "t": 12, "b": 40}}
    return {"data": traces, "layout": frame}
