"""Epochs over devices: the first and the second, by network, batch and size of the data set, and what devices gain.

The figures 5a to 5e of the data-parallel article (docs/plans.md), of our rows and of imported ones alike.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reports.figure import Chart
from reports.lines import Line, from_zero_up, lines_figure
from reports.names import common, names
from reports.panels import Panel, beside_others, kept_whole
from reports.scaling import of_a_node, on_nodes
from reports.text import accuracy, middle, number
from suite.analysis.comparability import FOREIGN
from suite.analysis.connections import Worker
from suite.analysis.learning import Learnt
from suite.analysis.rows import Row
from suite.analysis.spread import Spread, spread
from suite.contracts.case import Case, Placement
from suite.groups import grouped

Value = Callable[["Epochs"], Spread | None]
FIRST, SECOND = 1, 2
BY_SIZE = "by size of the data set"
WORKERS = 16  # of a training that are listed one by one
LINES = 6  # that a chart can hold and be read: two strategies at three batches


@dataclass(frozen=True)
class Epochs:
    """One case, over its seeds and processes."""

    rows: tuple[Row, ...]

    @property
    def devices(self) -> int:
        return self.rows[0].case.placement.device_count

    @property
    def lessons(self) -> list[Learnt]:
        return [lesson for row in self.rows for lesson in row.lessons]

    @property
    def minutes(self) -> Spread | None:
        """Of whole trainings, tests between epochs left out."""
        return spread([lesson.seconds / 60 for lesson in self.lessons])

    @property
    def count(self) -> Spread | None:
        """Epochs that trainings took: fewer than asked where patience ended them."""
        return spread([len(lesson.epochs) for lesson in self.lessons])

    @property
    def best(self) -> Spread | None:
        return spread([lesson.best for lesson in self.lessons])

    @property
    def early(self) -> int:
        """How many trainings ended before their last epoch."""
        return sum(len(lesson.epochs) < self.rows[0].case.training.epochs for lesson in self.lessons)

    @property
    def where(self) -> str:
        """Hosts, and what connected their ranks."""
        about = [process.about for row in self.rows for process in row.processes]
        hosts = dict.fromkeys(host for each in about for host in each.hosts)
        carriers = dict.fromkeys(each.transport for each in about if each.transport)
        return "; ".join(filter(None, (", ".join(hosts), ", ".join(carriers))))

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Its ranks, and whom each is connected to; of its first training that reports any."""
        about = (process.about for row in self.rows for process in row.processes)
        return next((each.workers for each in about if each.workers), ())

    def seconds(self, number: int) -> Spread | None:
        """Of the epoch of that number, from 1."""
        return spread([times[number - 1][0] for times in self._times if len(times) >= number])

    def rate(self, number: int) -> Spread | None:
        """Samples/s likewise."""
        return spread([times[number - 1][1] / times[number - 1][0] for times in self._times if len(times) >= number])

    @property
    def _times(self) -> list[tuple[tuple[float, float], ...]]:
        own: list[tuple[tuple[float, float], ...]] = [
            tuple((one.seconds, one.samples) for one in lesson.epochs) for lesson in self.lessons
        ]
        return own + [times for row in self.rows for times in row.published]


@dataclass(frozen=True)
class Series:
    """One strategy with one network, data set and batch per device, from its fewest devices to its most."""

    case: Case  # without a place
    points: tuple[Epochs, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for point in self.points for row in point.rows]

    def strategy(self, point: Epochs) -> str:
        """What trained there where it is another one than the series': on one device often `single`."""
        name = point.rows[0].case.strategy
        return "" if name == self.case.strategy else name

    @property
    def whole(self) -> bool:
        """Whether it trained for more than the two epochs that are timed apart."""
        return self.case.training.epochs > SECOND and not self.rows[0].published

    def speed_up(self, point: Epochs, number: int) -> float | None:
        """An epoch's samples/s over those of one device; None without that one."""
        base, there = self.points[0].rate(number), point.rate(number)
        return there.value / base.value if self.points[0].devices == 1 and base and there else None

    def sooner(self, point: Epochs) -> float | None:
        """How many times sooner a whole training ends than on one device."""
        base, there = self.points[0].minutes, point.minutes
        return base.value / there.value if self.points[0].devices == 1 and base and there else None


@dataclass(frozen=True)
class OverDevices:
    """All series of a run, named, and their charts."""

    named: list[tuple[str, Series]]
    charts: list[Chart]
    article: bool  # whether the charts bear the article's numbers

    @property
    def whole(self) -> list[tuple[str, Series]]:
        """Those that trained for more than the two epochs that are timed apart."""
        return [(name, one) for name, one in self.named if one.whole]

    @property
    def whole_charts(self) -> list[Chart]:
        """Minutes of a whole training by devices, a chart a network and data set."""
        groups = _groups([one for _, one in self.whole], lambda case: (case.workload, case.data))
        drawn = [_over_devices("minutes of a whole training", group, _minutes) for group in groups]
        return [chart for chart in drawn if chart]

    @property
    def connected(self) -> list[tuple[str, Epochs, Worker]]:
        """The first workers of whole trainings, by the series' name and the number of devices."""
        points = [(name, point) for name, one in self.whole for point in one.points]
        return [(name, point, worker) for name, point in points for worker in point.workers[:WORKERS]]

    @property
    def longer(self) -> bool:
        """Whether a training has more workers than are listed."""
        return any(len(point.workers) > WORKERS for _, one in self.whole for point in one.points)

    @property
    def answers(self) -> list[str]:
        """How long a whole training takes on the most devices, in a sentence a series."""
        return [_answer(name, one) for name, one in self.whole]


def over_devices(rows: Iterable[Row], article: bool = False) -> OverDevices | None:
    """Of every strategy that was tried on several devices, beside one device alone; None without one.

    `article`: it is the article's experiment, and its figures bear their numbers; imported lines of its own do anyway.
    """
    timed = [row for row in rows if (row.published or row.lessons) and row.case.scaling == "weak"]
    single = grouped((row for row in timed if not row.several_devices), lambda row: _alike(row.case))
    several = grouped(
        (row for row in timed if row.several_devices), lambda row: (_placeless(row.case).id, of_a_node(row.case))
    )
    found = [one for one in (_series(members, single) for members in several.values()) if len(one.points) > 1]
    if not found:
        return None
    article = article or all(row.published for row in timed)
    return OverDevices(list(zip(_names(found), found, strict=True)), _charts(found, article), article)


def _answer(name: str, one: Series) -> str:
    first, last = one.points[0], one.points[-1]
    beside = f" ({number(first.minutes.value)} on one)" if first.devices == 1 and first.minutes else ""
    took = f"a training takes {middle(last.minutes)} minutes on {last.devices} devices{beside}"
    what = f"{one.case.workload} on {one.case.data_name}"
    return f"{what}, {name}: {took}; the best accuracy there is {accuracy(last.best)}."


def _names(found: Sequence[Series]) -> list[str]:
    nodes = [of_a_node(one.rows[-1].case) for one in found]
    called = names([one.case for one in found])
    return [on_nodes(*each) for each in zip(called, nodes, strict=True)]


def _series(rows: list[Row], single: dict[str, list[Row]]) -> Series:
    """One device alone is the strategy's own where it was tried, else the adapter's first that trains there."""
    case = rows[0].case
    alone = single.get(_alike(case), [])
    trained = {row.case.strategy for row in alone}
    name = case.strategy if case.strategy in trained else alone[0].case.strategy if alone else ""
    points = grouped(
        [row for row in alone if row.case.strategy == name] + rows, lambda row: row.case.placement.device_count
    )
    return Series(_placeless(case), tuple(Epochs(tuple(points[count])) for count in sorted(points)))


def _placeless(case: Case) -> Case:
    place = Placement(device=case.placement.device, threads=case.placement.threads)
    return replace(case, placement=place, seed=0, lr=0.0)


def _alike(case: Case) -> str:
    """What one device and several have in common."""
    return replace(_placeless(case), strategy="", knobs={}).id


# --- charts -------------------------------------------------------------------


def _charts(found: list[Series], numbered: bool) -> list[Chart]:
    """One of each of the figures 5a to 5e, then the others; what does not vary has none.

    At the article's sizes where it fixes one: 5b on the largest data set, 5c to 5e at the middle batch, 5d on the
    smallest set.
    """
    repeats, batches = {one.case.input.repeat for one in found}, sorted({one.case.batch for one in found})
    middle = batches[len(batches) // 2]
    by_batch = _together([one for one in found if one.case.input.repeat == max(repeats)])
    by_repeat = _together([one for one in found if one.case.batch == middle])
    epochs = [one for one in found if one.case.batch == middle and one.case.input.repeat == min(repeats)]

    def sizes(case: Case) -> tuple[object, ...]:
        return case.data, case.input.repeat, case.batch

    drawn = {
        "5a": [_by_devices("all strategies and networks", group, _rate) for group in _groups(found, sizes)],
        "5b": [_by_devices("by batch", group, _rate) for group in by_batch if len(batches) > 1],
        "5c": [_by_devices(BY_SIZE, group, _seconds, "seconds") for group in by_repeat if len(repeats) > 1],
        "5d": [_first_and_second(group) for group in _groups(epochs, lambda case: (case.workload, case.data))],
        "5e": [_by_devices(BY_SIZE, group, _rate) for group in by_repeat if len(repeats) > 1],
    }
    first, others = [], []
    for figure, charts in drawn.items():
        title = f"Figure {figure}: " * numbered
        there = [(replace(chart[0], title=title + chart[0].title), chart[1]) for chart in charts if chart]
        first += there[:1]
        others += there[1:]
    return first + others


def _together(found: list[Series]) -> list[list[Series]]:
    """A chart for each network and data set, both frameworks in it as in the article; a strategy's own if too full."""
    groups = _groups(found, lambda case: (case.workload, case.data))
    if max(map(len, groups), default=0) <= LINES:
        return groups
    return _groups(found, lambda case: (case.adapter, case.strategy, str(case.knobs), case.workload, case.data))


def _rate(point: Epochs) -> Spread | None:
    return point.rate(SECOND)


def _seconds(point: Epochs) -> Spread | None:
    return point.seconds(SECOND)


def _minutes(point: Epochs) -> Spread | None:
    return point.minutes


def _groups(found: Iterable[Series], key: Callable[[Case], tuple[object, ...]]) -> list[list[Series]]:
    return list(grouped(found, lambda one: key(one.case)).values())


def _by_devices(how: str, group: list[Series], value: Value, unit: str = "samples/s") -> Chart | None:
    return _over_devices(f"{unit} of the second epoch, {how}", group, value, f"{unit}, second epoch")


def _over_devices(title: str, group: list[Series], value: Value, up: str = "") -> Chart | None:
    shown, panel = _panel(title, group)
    lines = [_line(name, one, value) for name, one in zip(panel.names, shown, strict=True)]
    return (
        (panel, from_zero_up(lines_figure(lines, "devices", up or title, "lines+markers", log=True))) if lines else None
    )


def _line(name: str, one: Series, value: Value) -> Line:
    found = [(point.devices, value(point)) for point in one.points]
    there = [(devices, each) for devices, each in found if each]
    ends: tuple[Sequence[float], ...] = ([each.low for _, each in there], [each.high for _, each in there])
    return Line(name, [devices for devices, _ in there], [each.value for _, each in there], *ends)


def _first_and_second(group: list[Series]) -> Chart | None:
    shown, panel = _panel("samples/s of the first epoch against the second", group)
    lines = []
    for name, one in zip(panel.names, shown, strict=True):
        pairs = [(point.rate(FIRST), point.rate(SECOND)) for point in one.points]
        both = [(first.value, second.value) for first, second in pairs if first and second]
        lines.append(Line(name, [first for first, _ in both], [second for _, second in both]))
    figure = lines_figure(lines, "samples/s, first epoch", "samples/s, second epoch", "markers")
    return (panel, figure) if lines else None


def _panel(title: str, group: list[Series]) -> tuple[list[Series], Panel]:
    """Which series may share a chart, and what stands above it."""
    rows = [row for one in group for row in one.rows]
    kept, warning = beside_others(rows)
    if all(FOREIGN in row.marks for row in rows):  # an article's figure is drawn as it drew it
        kept, warning = rows, f"not to be compared: {FOREIGN}"
    shown = kept_whole(group, kept, lambda one: one.rows)
    everywhere = [row.case for one in shown for row in one.rows]
    first, alike = group[0].case, [one.case for one in group]
    words = f"{first.workload} on " if len({case.workload for case in alike}) == 1 else ""
    sizes = [f"{first.input.repeat}× data"] * (len({case.input.repeat for case in alike}) == 1)  # noqa: RUF001
    sizes += [f"batch {first.batch} per device"] * (len({case.batch for case in alike}) == 1)
    by = f" by {first.adapter}/{first.strategy}" * (len({(case.adapter, case.strategy) for case in alike}) == 1)
    title = ", ".join([f"{words}{first.data_name}{by}: {title}", *sizes])
    return shown, Panel(
        title, [one.rows[-1] for one in shown], _names(shown), common(everywhere) if shown else "", warning
    )
