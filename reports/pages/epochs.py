"""Epochs over devices and times to train; the figures 5a to 5e of the data-parallel article (docs/experiments.md)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reports.charts.html import Body, Content, folded, listing, note, small, table
from reports.charts.html import spread as ranged
from reports.charts.lines import Line, Lines
from reports.charts.rows import Rows, bar, linear
from reports.pages.run import Chart, Report, Section
from reports.pages.scaling import of_a_node, on_nodes
from suite.analysis.comparability import FOREIGN
from suite.analysis.learning import Epoch, Learnt
from suite.analysis.measured import Worker
from suite.analysis.panels import Name, beside_others, common, kept_whole, labels
from suite.analysis.rows import Row
from suite.analysis.stats import Interval, Spread, spread
from suite.analysis.wording import accuracy, middle, number, share, whole_number
from suite.contracts.case import Case, Placement
from suite.text import grouped

FIRST, SECOND = 1, 2
WORKERS = 16  # of a training that are listed one by one
DRAWN = 6  # charts; the others are folded away
LINES = 6  # that a chart can hold and be read: two strategies at three batches
ARTICLE = "data-parallel"  # the plan whose charts over devices are the article's figures
# The article's large network, by its code, else by its text; of each framework the first of these strategies that was
# tried: as its results are imported, as it trained, or what comes nearest.
MEDIANS = "Medians over trainings (seeds and processes); small numbers: the least and the most."
SMALL, LARGE = "mnist_small", ("mnist_large", "mnist_stated")
OWN = {"pytorch": ("data-parallel", "dp", "ddp"), "tensorflow": ("data-parallel", "keras_fit", "mirrored")}


@dataclass(frozen=True)
class Trained:
    """Trainings of one setting on as many devices, over seeds and processes."""

    rows: tuple[Row, ...]

    @property
    def case(self) -> Case:
        return self.rows[0].case

    @property
    def devices(self) -> int:
        return self.case.placement.device_count

    @property
    def lessons(self) -> list[Learnt]:
        return [lesson for row in self.rows for lesson in row.lessons]

    @property
    def minutes(self) -> Spread | None:
        """The length of whole trainings, without tests between epochs."""
        return spread([lesson.seconds / 60 for lesson in self.lessons])

    @property
    def best(self) -> Spread | None:
        return spread([lesson.best for lesson in self.lessons])

    def seconds(self, number_: int) -> Spread | None:
        """Return the seconds of the epoch of that number, from 1."""
        return spread([times[number_ - 1][0] for times in self._times if len(times) >= number_])

    def rate(self, number_: int) -> Spread | None:
        """Return the samples/s of the epoch of that number, from 1."""
        return spread([times[number_ - 1][1] / times[number_ - 1][0] for times in self._times if len(times) >= number_])

    @property
    def _times(self) -> list[tuple[tuple[float, float], ...]]:
        own = [tuple((one.seconds, one.samples) for one in lesson.epochs) for lesson in self.lessons]
        return [*own, *(times for row in self.rows for times in row.published)]

    def epochs(self, number_: int) -> list[Epoch]:
        """Return the epoch of that number, from 1, of every training that has it; -1: the last."""
        every = [lesson.epochs for lesson in self.lessons]
        return [epochs[number_ - (number_ > 0)] for epochs in every if len(epochs) >= number_]

    @property
    def connected(self) -> tuple[Worker, ...]:
        """The workers of the first training that reports any."""
        about = (process.about for row in self.rows for process in row.processes)
        return next((each.workers for each in about if each.workers), ())


@dataclass(frozen=True)
class Series:
    """A strategy with a network, data set and batch per device, from its fewest devices to its most."""

    name: Name
    case: Case  # without a place
    points: tuple[Trained, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for point in self.points for row in point.rows]

    @property
    def whole(self) -> bool:
        """True if it trained for more than the two epochs that are timed one by one."""
        return self.case.training.epochs > SECOND and not self.rows[0].published

    def speed_up(self, point: Trained, number_: int) -> float | None:
        """Return an epoch's samples/s over those of one device; None without that one."""
        base, there = self.points[0].rate(number_), point.rate(number_)
        return there.value / base.value if self.points[0].devices == 1 and base and there else None

    def sooner(self, point: Trained) -> float | None:
        """Return how many times sooner a whole training ends than on one device."""
        base, there = self.points[0].minutes, point.minutes
        return base.value / there.value if self.points[0].devices == 1 and base and there else None


def over_devices(rows: Iterable[Row]) -> list[Series]:
    """Return every strategy that was tried on several devices, with one device alone where that was tried, too."""
    timed = [row for row in rows if (row.published or row.lessons) and row.case.scaling == "weak"]
    single = grouped((row for row in timed if not row.several_devices), lambda row: _alike(row.case))
    several = grouped(
        (row for row in timed if row.several_devices), lambda row: (_placeless(row.case).id, of_a_node(row.case))
    )
    found = []
    for members in several.values():
        case = members[0].case
        alone = single.get(_alike(case), [])
        # One device is the strategy's own where it was tried, else the adapter's first that trains there.
        trained = {row.case.strategy for row in alone}
        name = case.strategy if case.strategy in trained else alone[0].case.strategy if alone else ""
        members = [row for row in alone if row.case.strategy == name] + members
        points = sorted(grouped(members, lambda row: row.case.placement.device_count).items())
        if len(points) > 1:
            found.append(Series(Name("", ""), _placeless(case), tuple(Trained(tuple(own)) for _, own in points)))
    return [replace(one, name=name) for one, name in zip(found, _names(found), strict=True)]


def devices(report: Report) -> Section | None:
    """Return the first and the second epoch over devices."""
    every = over_devices(report.rows)
    if not every:
        return None
    imported = all(row.published for one in every for row in one.rows)
    figures = _figures(every) if report.plan.name == ARTICLE or imported else {}
    heads = "Strategy | devices"
    for which in ("first", "second"):
        heads += f" | {which}, samples/s! | speed-up, {which} | efficiency, {which}"
    lines = []
    for one in every:
        for point in one.points:
            cells: list[Content] = [report.head(one.name, point.rows[0]), [str(point.devices), _other(one, point)]]
            for number_ in (FIRST, SECOND):
                gain = one.speed_up(point, number_)
                cells += [ranged(point.rate(number_)), number(gain), share(gain / point.devices if gain else None)]
            lines.append(cells)
    body = [note("Figures 5a to 5e: the numbers of the data-parallel article.") if figures else None]
    body += [*report.few("devices", charts_of(every, figures), DRAWN), table("Epochs over devices", heads, Body(lines))]
    body.append(note(MEDIANS))
    title, answers = _second_epochs(every)
    return Section("devices", title, body, answers=answers, definitions=_DEVICES, name="Epochs over devices")


_DEVICES = (
    "The first and the second epoch on one device and on several, with the same batch on every device. Speed-up: "
    "samples/s divided by those of one device with the same framework. Efficiency: the speed-up divided by the number "
    "of devices. An epoch begins once its input is open; in the article, opening it is part of the first epoch. The "
    "article’s text gives its large network 2,636,554 parameters, as mnist_stated has; in its PyTorch code it has "
    "4,104,202, as mnist_large has."
)


def _other(one: Series, point: Trained) -> Content:
    """Return the strategy that trained at a point where it is another one than the series'."""
    name = point.case.strategy
    return None if name == one.case.strategy else small(name)


def _second_epochs(every: Sequence[Series]) -> tuple[str, list[str]]:
    """Return (headline, a sentence a network): strategies on most devices, on the largest set at the middle batch."""
    sentences, best = [], (0.0, "", 0)
    for group in _grouped(at_one_size(every), lambda case: (case.workload, case.data)):
        speeds = []
        for one in group:
            last = one.points[-1]
            rate, gain = last.rate(SECOND), one.speed_up(last, SECOND)
            if rate and gain:
                does = f"{one.name.words} does {number(rate.value)} samples/s on {last.devices} devices"
                speeds.append((rate.value, f"{does}, {number(gain)} times as much as on one"))
                best = max(best, (gain, one.name.words, last.devices), key=lambda each: each[0])
        if speeds:
            case = group[0].case
            words = "; ".join(words for _, words in sorted(speeds, reverse=True)[:8])
            sentences.append(f"{case.workload} on {case.data_name}: {words}.")
    gain, name, count = best
    return f"{name} gains most: {number(gain)} times on {count} devices" if name else "Epochs over devices", sentences


def charts_of(every: Sequence[Series], figures: dict[str, Lines]) -> list[Chart]:
    """Return the article's figures under their numbers, else a chart of each kind; then the others."""
    drawn = _kinds(every)
    if not figures:
        return [*(charts[0] for charts in drawn if charts), *(chart for charts in drawn for chart in charts[1:])]
    there = {chart.setting for chart in figures.values()}
    own = [replace(chart, title=f"Figure {name}: {chart.title}") for name, chart in figures.items()]
    return [*own, *(chart for charts in drawn for chart in charts if chart.setting not in there)]


def _figures(every: Sequence[Series]) -> dict[str, Lines]:
    """Return the article's figures by number, of its networks and strategies only: 5b to 5e are of the large network.

    At its sizes where it fixes one: 5a and 5b on the largest data set, 5a and 5c to 5e at the middle batch, 5d on the
    smallest set.
    """
    large = next((name for name in LARGE if any(one.case.workload == name for one in every)), None)
    tried = {(one.case.adapter, one.case.strategy) for one in every}
    ours = {(adapter, next((one for one in its if (adapter, one) in tried), None)) for adapter, its in OWN.items()}
    own = [one for one in every if (one.case.adapter, one.case.strategy) in ours]
    _, *of_large = _kinds([one for one in own if one.case.workload == large])
    alike = at_one_size([one for one in own if one.case.workload in (SMALL, large)])
    of_both = _kinds(alike)[0] if len({one.case.workload for one in alike}) > 1 else []
    return {f"5{letter}": charts[0] for letter, charts in zip("abcde", (of_both, *of_large), strict=True) if charts}


def _kinds(every: Sequence[Series]) -> list[list[Lines]]:
    """Return charts of the five kinds of the article's figures, in their order; a constant has none."""
    if not every:
        return [[], [], [], [], []]
    repeats, middle = {one.case.input.repeat for one in every}, _middle_batch(every)
    by_batch = _readable([one for one in every if one.case.input.repeat == max(repeats)])
    by_repeat = _readable([one for one in every if one.case.batch == middle])
    smallest = [one for one in every if one.case.batch == middle and one.case.input.repeat == min(repeats)]
    sizes = _grouped(every, lambda case: (case.data, case.input.repeat, case.batch))
    batches = len({one.case.batch for one in every})
    seconds, size = "seconds of the second epoch", "by size of the data set"

    def rates(how: str, groups: Sequence[Sequence[Series]]) -> list[Lines | None]:
        up = "samples/s of the second epoch"
        return [_over(how, up, group, lambda point: point.rate(SECOND)) for group in groups]

    by_repeat = by_repeat if len(repeats) > 1 else []
    drawn = (
        rates("by strategy and network", sizes),
        rates("by batch", by_batch if batches > 1 else []),
        [_over(size, seconds, group, lambda point: point.seconds(SECOND)) for group in by_repeat],
        [_first_and_second(group) for group in _grouped(smallest, lambda case: (case.workload, case.data))],
        rates(size, by_repeat),
    )
    return [[chart for chart in charts if chart] for charts in drawn]


def _readable(every: Sequence[Series]) -> list[list[Series]]:
    """Return a group for each network and data set, both frameworks in it; if too full, one for each strategy."""
    groups = _grouped(every, lambda case: (case.workload, case.data))
    if max(map(len, groups), default=0) <= LINES:
        return groups
    return _grouped(every, lambda case: (case.adapter, case.strategy, str(case.knobs), case.workload, case.data))


def _shown(group: Sequence[Series]) -> tuple[list[Series], str, str]:
    """Return (series that may share a chart, what they share in words, words about the others)."""
    rows = [row for one in group for row in one.rows]
    kept, warning = beside_others(rows)
    if all(FOREIGN in row.marks for row in rows):  # an article's figure is drawn as it drew it
        kept, warning = rows, f"not compared: {FOREIGN}"
    shown = kept_whole(group, kept, lambda one: one.rows)
    first, alike = group[0].case, [one.case for one in group]
    words = [
        f"{first.workload} on {first.data_name}" if len({case.workload for case in alike}) == 1 else first.data_name
    ]
    words += [f"{first.adapter} {first.strategy}"] * (len({(case.adapter, case.strategy) for case in alike}) == 1)
    words += [f"{first.input.repeat}× data"] * (len({case.input.repeat for case in alike}) == 1)
    words += [f"batch {first.batch} per device"] * (len({case.batch for case in alike}) == 1)
    return shown, " · ".join(words), warning


def _over(how: str, up: str, group: Sequence[Series], value: Callable[[Trained], Spread | None]) -> Lines | None:
    shown, setting, warning = _shown(group)
    lines = []
    for name, one in zip(_names(shown), shown, strict=True):
        points = [(point.devices, found) for point in one.points if (found := value(point))]
        lines.append(Line.of(name.words, [count for count, _ in points], [found for _, found in points]))
    if not lines:
        return None
    best = (min if "seconds" in up or "minutes" in up else max)(lines, key=lambda line: line.y[-1] or 0.0)
    lines = [replace(line, kind="lead" if line is best else "rest") for line in lines]
    ticks = {float(count): str(count) for count in sorted({point.devices for one in shown for point in one.points})}
    title, setting = f"{up[0].upper()}{up[1:]}, {how}", f"{setting} · {up}"
    return Lines(title, setting, lines, "devices", up, "x", ticks=ticks, warning=warning)


def _first_and_second(group: Sequence[Series]) -> Lines | None:
    shown, setting, warning = _shown(group)
    lines = []
    for name, one in zip(_names(shown), shown, strict=True):
        pairs = [(point.rate(FIRST), point.rate(SECOND)) for point in one.points]
        both = [(first.value, second.value) for first, second in pairs if first and second]
        lines.append(Line(name.words, [first for first, _ in both], [second for _, second in both], dots=True))
    title, setting = "Samples/s of the first epoch against the second", f"{setting} · first against second"
    axes = "samples/s, first epoch", "samples/s, second epoch"
    return Lines(title, setting, lines, *axes, warning=warning) if lines else None


def at_one_size(every: Sequence[Series]) -> list[Series]:
    """Return the series on the largest data set, at the middle batch."""
    if not every:
        return []
    repeat, batch = max(one.case.input.repeat for one in every), _middle_batch(every)
    return [one for one in every if (one.case.input.repeat, one.case.batch) == (repeat, batch)]


def _middle_batch(every: Sequence[Series]) -> int:
    batches = sorted({one.case.batch for one in every})
    return batches[len(batches) // 2]


def _grouped(every: Iterable[Series], key: Callable[[Case], tuple[object, ...]]) -> list[list[Series]]:
    return list(grouped(every, lambda one: key(one.case)).values())


def _names(every: Sequence[Series]) -> list[Name]:
    called = labels([one.case for one in every])
    return [
        Name(name.title, on_nodes(name.detail, of_a_node(one.rows[-1].case)))
        for name, one in zip(called, every, strict=True)
    ]


def _placeless(case: Case) -> Case:
    return replace(
        case, placement=Placement(device=case.placement.device, threads=case.placement.threads), seed=0, lr=0.0
    )


def _alike(case: Case) -> str:
    """Return a key that one device and several share."""
    return replace(_placeless(case), strategy="", knobs={}).id


def time_to_train(report: Report) -> Section | None:
    """Return how long whole trainings take on one device, on several, and over several hosts."""
    every = [one for one in over_devices(report.rows) if one.whole]
    if not every:
        return None
    groups = _grouped(every, lambda case: (case.workload, case.data))
    minutes = [
        _over("by devices", "minutes of a whole training", group, lambda point: point.minutes) for group in groups
    ]
    counted = any(lesson.target_joules for one in every for point in one.points for lesson in point.lessons)
    heads = "Strategy | nodes | devices | minutes! | speed-up | epochs | epochs per worker | ended early"
    heads += " | best accuracy" + " | joules to the target" * counted + " | hosts; connected by<"
    lines, answers, gains = [], [], []
    for one in every:
        for point in one.points:
            count = spread([len(lesson.epochs) for lesson in point.lessons])
            early = sum(len(lesson.epochs) < point.case.training.epochs for lesson in point.lessons)
            cells: list[Content] = [report.head(one.name, point.rows[0]), str(point.case.placement.nodes)]
            cells += [[str(point.devices), _other(one, point)], ranged(point.minutes), number(one.sooner(point))]
            cells += [ranged(count, whole_number), f"{count.value / point.devices:.3g}" if count else "–"]
            cells += [f"{early} of {len(point.lessons)}", accuracy(point.best)]
            cells += [ranged(spread([lesson.target_joules for lesson in point.lessons]))] * counted
            lines.append([*cells, _where(point)])
        first, last = one.points[0], one.points[-1]
        alone = f" ({number(first.minutes.value)} on one)" if first.devices == 1 and first.minutes else ""
        answers.append(
            f"{one.case.workload} on {one.case.data_name}, {one.name.words}: a training takes {middle(last.minutes)} "
            f"minutes on {last.devices} devices{alone}; the best accuracy there is {accuracy(last.best)}."
        )
        if gain := one.sooner(last):
            gains.append((gain, one.name.words, last.devices))
    body: list[Content] = [report.drawn("time_to_train", [chart for chart in minutes if chart]), listing(answers[:8])]
    body += [table("Time to train", heads, Body(lines)), note(MEDIANS), _connected(report, every)]
    title = "Time to train"
    if gains:
        gain, name, most = max(gains)
        title = f"{name} ends {'sooner' if gain > 1 else 'no sooner'} on {most} devices: {number(gain)} times"
    return Section("time_to_train", title, body, answers=answers, definitions=_TRAINING, name="Time to train")


_TRAINING = (
    "Whole trainings. All devices share the samples of an epoch, so epochs per worker is the number of epochs divided "
    "by the number of devices. Where a plan sets patience, a training ends early once its accuracy stops improving. "
    "Speed-up: the minutes on one device divided by these. Joules: of all hosts until the target accuracy, without "
    "tests. Connections are the TCP connections that each worker had "
    "when its training ended; workers of one host may exchange through shared memory instead, and InfiniBand has no "
    "such connections."
)


def _where(point: Trained) -> str:
    about = [process.about for row in point.rows for process in row.processes]
    hosts = dict.fromkeys(host for each in about for host in each.hosts)
    carriers = dict.fromkeys(each.transport for each in about if each.transport)
    return "; ".join(filter(None, (", ".join(hosts), ", ".join(carriers))))


def _connected(report: Report, every: Sequence[Series]) -> Content:
    """Return the table of which workers are connected; None where none reports it."""
    points = [(one, point) for one in every for point in one.points]
    lines = []
    for one, point in points:
        for worker in point.connected[:WORKERS]:
            everyone = len(worker.peers) > 3 and len(worker.peers) == len(point.connected) - 1
            peers = "all others" if everyone else _few(worker.peers)
            cells: list[Content] = [report.head(one.name, point.rows[0]), str(point.devices), str(worker.rank)]
            lines.append([*cells, worker.host, ", ".join(worker.addresses) or "–", peers, _few(worker.others)])
    heads = "Strategy | devices | rank | host< | address< | connected to ranks< | other processes at<"
    title = "Who is connected to whom"
    longer = any(len(point.connected) > WORKERS for _, point in points)
    words = title + f", the first {WORKERS} workers of larger groups" * longer
    return folded(words, table(title, heads, Body(lines))) if lines else None


def _few(values: Sequence[object]) -> str:
    words = ", ".join(map(str, values[:8])) or "–"
    return f"{words}, … ({len(values)})" if len(values) > 8 else words


def epochs(report: Report) -> Section | None:
    """Return the first and the second epoch of every training, timed one by one."""
    learnt = (row for row in report.rows if row.lessons)
    groups = grouped(learnt, lambda row: f"{row.case.workload} on {row.case.data_name}")
    if not groups:
        return None
    body: list[Content] = []
    warmest: tuple[float, str] = (0.0, "")
    for title, members in groups.items():
        trained = [Trained(tuple(rows)) for rows in grouped(members, lambda row: replace(row.case, seed=0).id).values()]
        cases = [replace(one.case, seed=0) for one in trained]
        panels = grouped(trained, lambda one: (one.case.input.repeat, one.case.batch))
        charts = [chart for several in panels.values() if (chart := _warming(report, title, several))]
        body += report.few("epochs", charts, DRAWN)
        opened = any(lesson.opening_seconds for one in trained for lesson in one.lessons)
        more = any(len(lesson.epochs) > SECOND for one in trained for lesson in one.lessons)
        heads = "Case | epochs" + " | opening, s" * opened + " | first, s | second, s | first ÷ second"
        heads += " | first, samples/s | second, samples/s! | accuracy after the first | after the second"
        heads += " | after the last" * more + " | trainings"
        lines = []
        for name, one in zip(labels(cases), trained, strict=True):
            first, second = one.seconds(FIRST), one.seconds(SECOND)
            ratio = first.value / second.value if first and second else None
            warmest = max(warmest, (ratio or 0.0, name.words))
            cells = [name.words, str(max(len(lesson.epochs) for lesson in one.lessons))]
            cells += [middle(spread([lesson.opening_seconds for lesson in one.lessons]))] * opened
            cells += [middle(first), middle(second), number(ratio), middle(one.rate(FIRST)), middle(one.rate(SECOND))]
            for number_ in (FIRST, SECOND, -1)[: 2 + more]:
                cells.append(accuracy(spread([epoch.accuracy for epoch in one.epochs(number_)])))
            lines.append([*cells, str(len(one.epochs(FIRST)))])
        body.append(table(f"Epochs: {title}", heads, Body(lines, title, common(cases))))
    most, warming = warmest
    headline = f"The first epoch takes up to {number(most)} times as long as the second" if most else "First epochs"
    also, name_ = f"{warming} most." if most else "", "First and second epoch"
    return Section("epochs", headline, body, also, definitions=_EPOCHS, name=name_)


_EPOCHS = (
    "The first epoch pays for what is done once: compiling, filling caches. Opening the input is in neither: readers "
    "start, and TensorFlow’s keras_fit shards the data set over its devices. Each epoch is timed from a common "
    "barrier until the last rank ends. Testing is not counted; reading the losses is. Medians over trainings (seeds "
    "and processes)."
)


def _warming(report: Report, title: str, members: Sequence[Trained]) -> Rows | None:
    """Return the second epoch's speeds as bars, with the first one's as diamonds; None of fewer than two."""
    kept, warning = beside_others([row for one in members for row in one.rows])
    shown = [
        (one, one.rate(FIRST), second)
        for one in kept_whole(members, kept, lambda one: one.rows)
        if (second := one.rate(SECOND))
    ]
    if len(shown) < 2:
        return None
    scale = linear(max(found.value for _, *pair in shown for found in pair if found))
    entries = []
    called = labels([replace(one.case, seed=0) for one, *_ in shown])
    for name, (one, first, second) in zip(called, shown, strict=True):
        found = Interval(second.value, second.low, second.high, second.of)
        drawn = bar(scale, found, second=first.value if first else None)
        words = f"first epoch {middle(first)}, second {middle(second)} samples/s"
        entries.append(report.entry(name, one.rows[0], drawn, number(second.value), words))
    entries.sort(key=lambda entry: entry.words)
    case, axis = members[0].case, "samples/s of the second epoch"
    setting = f"{title} · {case.input.repeat}× data · batch {case.batch} per device"
    return Rows("Second epoch; ◆ the first", setting, scale, entries, "samples/s", axis, warning=warning)
