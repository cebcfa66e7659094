"""Epochs over devices: the first and the second, by network, batch and size of the data set, and what devices gain."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from reports.names import common, names
from reports.panels import Panel, beside_others, kept_whole
from reports.scaling import of_a_node, on_nodes
from reports.text import accuracy, middle, number
from suite.analysis.comparability import FOREIGN
from suite.analysis.learning import Learnt
from suite.analysis.measured import Worker
from suite.analysis.rows import Row
from suite.analysis.stats import Spread, spread
from suite.contracts.case import Case, Placement
from suite.text import grouped

FIRST, SECOND = 1, 2
IN_WORDS = 8  # strategies in a sentence
WORKERS = 16  # of a training that are listed one by one


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
    """All series of a run, named."""

    named: list[tuple[str, Series]]

    @property
    def imported(self) -> bool:
        """Whether all of it is what other programs printed."""
        return all(row.published for _, one in self.named for row in one.rows)

    @property
    def whole(self) -> list[tuple[str, Series]]:
        """Those that trained for more than the two epochs that are timed apart."""
        return [(name, one) for name, one in self.named if one.whole]

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


def over_devices(rows: Iterable[Row]) -> OverDevices | None:
    """Of every strategy that was tried on several devices, beside one device alone; None without one."""
    timed = [row for row in rows if (row.published or row.lessons) and row.case.scaling == "weak"]
    single = grouped((row for row in timed if not row.several_devices), lambda row: _alike(row.case))
    several = grouped(
        (row for row in timed if row.several_devices), lambda row: (_placeless(row.case).id, of_a_node(row.case))
    )
    found = [one for one in (_series(members, single) for members in several.values()) if len(one.points) > 1]
    return OverDevices(list(zip(_names(found), found, strict=True))) if found else None


def _answer(name: str, one: Series) -> str:
    first, last = one.points[0], one.points[-1]
    beside = f" ({number(first.minutes.value)} on one)" if first.devices == 1 and first.minutes else ""
    took = f"a training takes {middle(last.minutes)} minutes on {last.devices} devices{beside}"
    what = f"{one.case.workload} on {one.case.data_name}"
    return f"{what}, {name}: {took}; the best accuracy there is {accuracy(last.best)}."


def _second_epochs(found: list[Series]) -> Iterator[str]:
    """A sentence a network: each strategy on its most devices, on the largest data set at the middle batch."""
    for group in groups_of(at_one_size(found), lambda case: (case.workload, case.data)):
        shown, panel = panel_of("the second epoch", group)
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


def at_one_size(found: list[Series]) -> list[Series]:
    """On the largest data set, at the middle batch."""
    if not found:
        return []
    repeat, batch = max(repeats_of(found)), middle_batch(found)
    return [one for one in found if (one.case.input.repeat, one.case.batch) == (repeat, batch)]


def repeats_of(found: list[Series]) -> set[int]:
    return {one.case.input.repeat for one in found}


def middle_batch(found: list[Series]) -> int:
    """The middle one of the batches that were tried."""
    batches = sorted({one.case.batch for one in found})
    return batches[len(batches) // 2]


def groups_of(found: Iterable[Series], key: Callable[[Case], tuple[object, ...]]) -> list[list[Series]]:
    return list(grouped(found, lambda one: key(one.case)).values())


def panel_of(title: str, group: list[Series]) -> tuple[list[Series], Panel]:
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
