"""Epochs over devices: the first and the second, by network, batch and size of the data set, and what devices gain.

The figures 5a to 5e of the data-parallel article (docs/plans.md), of our rows and of imported ones alike.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
IN_WORDS = 8  # strategies in a sentence
WORKERS = 16  # of a training that are listed one by one
LINES = 6  # that a chart can hold and be read: two strategies at three batches
# The article's large network, by its code, else by its text; of each framework the first of these strategies that was
# tried: as its results are imported, as it trained, or what comes nearest.
SMALL, LARGE = "mnist_small", ("mnist_large", "mnist_stated")
OWN = {"pytorch": ("data-parallel", "dp", "ddp"), "tensorflow": ("data-parallel", "keras_fit", "mirrored")}


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
        """On the most devices: how long a whole training takes, a sentence a series; else the second epoch's speed."""
        brief = [one for _, one in self.named if not one.whole and not one.rows[0].published]
        return [_answer(name, one) for name, one in self.whole] + list(_second_epochs(brief))


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
    figures = _figures(found) if article or all(row.published for row in timed) else {}
    return OverDevices(list(zip(_names(found), found, strict=True)), _charts(found, figures), bool(figures))


def _answer(name: str, one: Series) -> str:
    first, last = one.points[0], one.points[-1]
    beside = f" ({number(first.minutes.value)} on one)" if first.devices == 1 and first.minutes else ""
    took = f"a training takes {middle(last.minutes)} minutes on {last.devices} devices{beside}"
    what = f"{one.case.workload} on {one.case.data_name}"
    return f"{what}, {name}: {took}; the best accuracy there is {accuracy(last.best)}."


def _second_epochs(found: list[Series]) -> Iterator[str]:
    """A sentence a network: each strategy on its most devices, on the largest data set at the middle batch."""
    for group in _groups(_at_size(found), lambda case: (case.workload, case.data)):
        shown, panel = _panel("the second epoch", group)
        speeds = []
        for name, one in zip(panel.names, shown, strict=True):
            last = one.points[-1]
            rate, gain = last.rate(SECOND), one.speed_up(last, SECOND)
            if rate and gain:
                more = f"{number(gain)} times as much as on one"
                speeds.append(
                    (rate.value, f"{name} does {number(rate.value)} samples/s on {last.devices} devices, {more}")
                )
        if speeds:
            yield f"{panel.title}. {'; '.join(words for _, words in sorted(speeds, reverse=True)[:IN_WORDS])}."


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


def _charts(found: list[Series], figures: dict[str, Chart]) -> list[Chart]:
    """The article's figures under their numbers, else a chart of each kind; then the others."""
    drawn = _drawn(found)
    if not figures:
        return [charts[0] for charts in drawn if charts] + [chart for charts in drawn for chart in charts[1:]]
    there = {_what(chart) for chart in figures.values()}
    others = [chart for charts in drawn for chart in charts if _what(chart) not in there]
    return [
        (replace(panel, title=f"Figure {name}: {panel.title}"), one) for name, (panel, one) in figures.items()
    ] + others


def _figures(found: list[Series]) -> dict[str, Chart]:
    """By the article's numbers, of its networks and strategies alone: 5b to 5e are of the large network.

    At its sizes where it fixes one: 5a and 5b on the largest data set, 5a and 5c to 5e at the middle batch, 5d on the
    smallest set.
    """
    large = next((name for name in LARGE if any(one.case.workload == name for one in found)), None)
    tried = {(one.case.adapter, one.case.strategy) for one in found}
    ours = {(adapter, next((one for one in its if (adapter, one) in tried), None)) for adapter, its in OWN.items()}
    own = [one for one in found if (one.case.adapter, one.case.strategy) in ours]
    _, *of_large = _drawn([one for one in own if one.case.workload == large])
    both = [one for one in own if one.case.workload in (SMALL, large)]
    at_size = _at_size(both)
    of_both = _drawn(at_size)[0] if len({one.case.workload for one in at_size}) > 1 else []
    drawn = zip("abcde", (of_both, *of_large), strict=True)
    return {f"5{letter}": charts[0] for letter, charts in drawn if charts}


def _at_size(found: list[Series]) -> list[Series]:
    """On the largest data set, at the middle batch."""
    if not found:
        return []
    repeat, batch = max(_repeats(found)), _middle(found)
    return [one for one in found if (one.case.input.repeat, one.case.batch) == (repeat, batch)]


def _drawn(found: list[Series]) -> list[list[Chart]]:
    """Charts of the five kinds of the article's figures, in their order; what does not vary has none."""
    if not found:
        return [[], [], [], [], []]
    repeats, middle = _repeats(found), _middle(found)
    by_batch = _together([one for one in found if one.case.input.repeat == max(repeats)])
    by_repeat = _together([one for one in found if one.case.batch == middle])
    epochs = [one for one in found if one.case.batch == middle and one.case.input.repeat == min(repeats)]
    sizes = _groups(found, lambda case: (case.data, case.input.repeat, case.batch))
    batches = len({one.case.batch for one in found})
    drawn = (
        [_by_devices("by strategy and network", group, _rate) for group in sizes],
        [_by_devices("by batch", group, _rate) for group in by_batch if batches > 1],
        [_by_devices(BY_SIZE, group, _seconds, "seconds") for group in by_repeat if len(repeats) > 1],
        [_first_and_second(group) for group in _groups(epochs, lambda case: (case.workload, case.data))],
        [_by_devices(BY_SIZE, group, _rate) for group in by_repeat if len(repeats) > 1],
    )
    return [[chart for chart in charts if chart] for charts in drawn]


def _repeats(found: list[Series]) -> set[int]:
    return {one.case.input.repeat for one in found}


def _middle(found: list[Series]) -> int:
    """The middle one of the batches that were tried."""
    batches = sorted({one.case.batch for one in found})
    return batches[len(batches) // 2]


def _what(chart: Chart) -> tuple[str, ...]:
    """What a chart shows: a second one of the same is not drawn."""
    panel, _ = chart
    return panel.title, *(row.id for row in panel.rows)


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
