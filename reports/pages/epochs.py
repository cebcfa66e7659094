"""Epochs over devices and times to train; the figures 5a to 5e of the data-parallel article (docs/experiments.md)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import methodcaller
from typing import NamedTuple

from stagebench.reports.charts.html import Body, Cells, Content, folded, listing, note, small, table
from stagebench.reports.charts.html import spread as ranged
from stagebench.reports.charts.lines import Line, Lines, led
from stagebench.reports.charts.rows import Rows, bar, linear
from stagebench.reports.pages.learning import Trained, trained
from stagebench.reports.pages.run import Chart, Report, Section, named
from stagebench.reports.pages.scaling import anywhere, of_a_node, on_nodes
from stagebench.suite.analysis.comparability import FOREIGN
from stagebench.suite.analysis.panels import Name, common, kept_whole
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Interval, Spread, spread
from stagebench.suite.analysis.wording import accuracy, middle, number, share, whole_number
from stagebench.suite.contracts.case import Case
from stagebench.suite.text import grouped

FIRST, SECOND = 1, 2
_first, _second = methodcaller("rate", FIRST), methodcaller("rate", SECOND)  # samples/s of these epochs
WORKERS = 16  # of a training that are listed one by one
DRAWN = 6  # charts; the others are folded away
LINES = 6  # that a chart can hold and be read: two strategies at three batches
ARTICLE = "data-parallel"  # the plan whose charts over devices are the article's figures
MEDIANS = "Medians over trainings (seeds and processes); small numbers: the least and the most."
# The article's large network, by its code, else by its text; of each framework the first of these strategies that was
# tried: as its results are imported, as it trained, or what comes nearest.
SMALL, LARGE = "mnist_small", ("mnist_large", "mnist_stated")
OWN = {"pytorch": ("data-parallel", "dp", "ddp"), "tensorflow": ("data-parallel", "keras_fit", "mirrored")}


class Series(NamedTuple):
    """A strategy with a network, data set and batch per device, from its fewest devices to its most."""

    name: Name
    case: Case  # without a place
    points: tuple[Trained, ...]

    @property
    def rows(self) -> list[Row]:
        return [row for point in self.points for row in point.rows]

    def gain(self, point: Trained, value: Callable[[Trained], Spread | None]) -> float | None:
        """Return a value over that of one device; None without one of them."""
        base, there = value(self.points[0]), value(point)
        return there.value / base.value if self.points[0].devices == 1 and base and there else None

    def other(self, point: Trained) -> Content:
        """Return the strategy that trained at a point where it is another one than the series'."""
        return None if point.case.strategy == self.case.strategy else small(point.case.strategy)


def over_devices(rows: Iterable[Row]) -> list[Series]:
    """Return every strategy that was tried on several devices, with one device alone where that was tried, too."""

    def alike(row: Row) -> str:
        return _placeless(row).on(strategy="", knobs={}).id

    timed = [row for row in rows if (row.published or row.lessons) and row.case.scaling == "weak"]
    single = grouped((row for row in timed if not row.several_devices), alike)
    several = (row for row in timed if row.several_devices)
    found = []
    for members in grouped(several, lambda row: (_placeless(row).id, of_a_node(row.case))).values():
        # One device is the strategy's own where it was tried, else the adapter's first that trains there.
        alone, own = single.get(alike(members[0]), []), members[0].case.strategy
        tried = [row.case.strategy for row in alone]
        name = own if own in tried else tried[0] if tried else ""
        rows = [row for row in alone if row.case.strategy == name] + members
        points = sorted(grouped(rows, lambda row: row.case.placement.device_count).items())
        if len(points) > 1:
            found.append(Series(Name("", ""), _placeless(members[0]), tuple(Trained(rows) for _, rows in points)))
    return _called(found)


def _placeless(row: Row) -> Case:
    return anywhere(row.case).on(seed=0)


def _called(every: Iterable[Series]) -> list[Series]:
    return [one._replace(name=on_nodes(name, of_a_node(one.rows[-1].case))) for name, one in named(every)]


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
            cells: Cells = [report.head(one.name, point.rows[0]), [str(point.devices), one.other(point)]]
            for rate in (_first, _second):
                gain = one.gain(point, rate)
                cells += [ranged(rate(point)), number(gain), share(gain / point.devices if gain else None)]
            lines.append(cells)
    body = [note("Figures 5a to 5e: the numbers of the data-parallel article.") if figures else None]
    body += [*report.few("devices", charts_of(every, figures), DRAWN), table("Epochs over devices", heads, lines)]
    title, answers = _second_epochs(every)
    return Section("devices", title, [*body, note(MEDIANS)], "", answers)


def _second_epochs(every: Sequence[Series]) -> tuple[str, list[str]]:
    """Return (headline, a sentence a network): strategies on most devices, on the largest set at the middle batch."""
    sentences, best = [], (0.0, "", 0)
    for group in _grouped(at_one_size(every), lambda case: (case.workload, case.data)):
        speeds = []
        for one in group:
            last, name = one.points[-1], one.name.words
            if (rate := _second(last)) and (gain := one.gain(last, _second)):
                does = f"{name} does {number(rate.value)} samples/s on {last.devices} devices"
                speeds.append((rate.value, f"{does}, {number(gain)} times as much as on one"))
                best = max(best, (gain, name, last.devices), key=lambda each: each[0])
        if speeds:
            words = "; ".join(words for _, words in sorted(speeds, reverse=True)[:8])
            sentences.append(f"{group[0].case.workload} on {group[0].case.data_name}: {words}.")
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
        return [[] for _ in range(5)]
    repeats, batches = {one.case.input.repeat for one in every}, {one.case.batch for one in every}
    at_most = [one for one in every if one.case.input.repeat == max(repeats)]
    at_middle = [one for one in every if one.case.batch == _middle_batch(every)]
    smallest = [one for one in at_middle if one.case.input.repeat == min(repeats)]
    by_batch = _readable(at_most) if len(batches) > 1 else []
    by_repeat = _readable(at_middle) if len(repeats) > 1 else []
    up, size = "samples/s of the second epoch", "by size of the data set"
    sizes = _grouped(every, lambda case: (case.data, case.input.repeat, case.batch))
    drawn = (
        [_over("by strategy and network", up, group, _second) for group in sizes],
        [_over("by batch", up, group, _second) for group in by_batch],
        [_over(size, "seconds of the second epoch", group, lambda point: point.took(SECOND)) for group in by_repeat],
        [_first_and_second(group) for group in _grouped(smallest, lambda case: (case.workload, case.data))],
        [_over(size, up, group, _second) for group in by_repeat],
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
    cases, (shown, warning) = [one.case for one in group], kept_whole(group, lambda one: one.rows)
    if all(FOREIGN in row.marks for one in group for row in one.rows):  # an article's figure is drawn as it drew it
        shown, warning = list(group), f"not compared: {FOREIGN}"
    said = (
        (
            f"{case.workload} on {case.data_name}",
            f"{case.adapter} {case.strategy}",
            f"{case.input.repeat}× data",
            f"batch {case.batch} per device",
        )
        for case in cases
    )
    words = [column[0] for column in zip(*said, strict=True) if len(set(column)) == 1]
    data = [cases[0].data_name] * (len({case.workload for case in cases}) > 1)
    return _called(shown), " · ".join([*data, *words]), warning


def _over(how: str, up: str, group: Sequence[Series], value: Callable[[Trained], Spread | None]) -> Lines | None:
    shown, setting, warning = _shown(group)
    lines = []
    for one in shown:
        points = {point.devices: found for point in one.points if (found := value(point))}
        lines.append(Line.of(one.name.words, list(points), points.values()))
    if not lines:
        return None
    lines, _ = led(lines, max if "samples" in up else min)
    title, setting = f"{up[0].upper()}{up[1:]}, {how}", f"{setting} · {up}"
    counts = [point.devices for one in shown for point in one.points]
    return Lines(title, setting, lines, "devices", up, "x", ticks=counts, warning=warning)


def _first_and_second(group: Sequence[Series]) -> Lines | None:
    shown, setting, warning = _shown(group)
    lines = []
    for one in shown:
        pairs = [(_first(point), _second(point)) for point in one.points]
        both = [(first.value, second.value) for first, second in pairs if first and second]
        lines.append(Line(one.name.words, [first for first, _ in both], [second for _, second in both], dots=True))
    title, setting = "Samples/s of the first epoch against the second", f"{setting} · first against second"
    axes = "samples/s, first epoch", "samples/s, second epoch"
    return Lines(title, setting, lines, *axes, warning=warning) if lines else None


def at_one_size(every: Sequence[Series]) -> list[Series]:
    """Return the series on the largest data set, at the middle batch."""
    repeat = max((one.case.input.repeat for one in every), default=0)
    return [one for one in every if (one.case.input.repeat, one.case.batch) == (repeat, _middle_batch(every))]


def _middle_batch(every: Sequence[Series]) -> int:
    batches = sorted({one.case.batch for one in every})
    return batches[len(batches) // 2]


def _grouped(every: Iterable[Series], key: Callable[[Case], tuple[object, ...]]) -> list[list[Series]]:
    return list(grouped(every, lambda one: key(one.case)).values())


def time_to_train(report: Report) -> Section | None:
    """Return how long whole trainings take on one device, on several, and over several hosts."""
    # Whole ones train for more than the two epochs that are timed one by one.
    ours = (one for one in over_devices(report.rows) if not one.rows[0].published)
    every = [one for one in ours if one.case.training.epochs > SECOND]
    if not every:
        return None
    groups = _grouped(every, lambda case: (case.workload, case.data))
    minutes = (_over("by devices", "minutes of a whole training", group, _minutes) for group in groups)
    points = [(one, point) for one in every for point in one.points]
    counted = any(lesson.target_joules for _, point in points for lesson in point.lessons)
    heads = "Strategy | nodes | devices | minutes! | speed-up | epochs | epochs per worker | ended early"
    heads += " | best accuracy" + " | joules to the target" * counted + " | hosts; connected by<"
    lines = []
    for one, point in points:
        count, slower = point.over(lambda lesson: len(lesson.epochs)), one.gain(point, _minutes)
        early = sum(len(lesson.epochs) < point.case.training.epochs for lesson in point.lessons)
        cells: Cells = [report.head(one.name, point.rows[0]), str(point.case.placement.nodes)]
        cells += [[str(point.devices), one.other(point)], ranged(_minutes(point)), number(slower and 1 / slower)]
        cells += [ranged(count, whole_number), f"{count.value / point.devices:.3g}" if count else "–"]
        cells += [f"{early} of {len(point.lessons)}", accuracy(point.best)]
        cells += [ranged(point.over(lambda lesson: lesson.target_joules))] * counted
        about = [process.about for row in point.rows for process in row.processes]
        hosts = dict.fromkeys(host for each in about for host in each.hosts)
        carriers = dict.fromkeys(each.transport for each in about if each.transport)
        lines.append([*cells, "; ".join(filter(None, (", ".join(hosts), ", ".join(carriers))))])
    answers, title, most = [], "Time to train", 0.0
    for one in every:
        last, alone = one.points[-1], _minutes(one.points[0]) if one.points[0].devices == 1 else None
        answers.append(
            f"{one.case.workload} on {one.case.data_name}, {one.name.words}: a training takes {middle(_minutes(last))} "
            f"minutes on {last.devices} devices{f' ({middle(alone)} on one)' if alone else ''}; "
            f"the best accuracy there is {accuracy(last.best)}."
        )
        slower = one.gain(last, _minutes)
        if slower and (gain := 1 / slower) > most:
            most, sooner = gain, "sooner" if gain > 1 else "no sooner"
            title = f"{one.name.words} ends {sooner} on {last.devices} devices: {number(gain)} times"
    body: Cells = [report.drawn("time_to_train", minutes), listing(answers[:8], "ul.findings")]
    body += [table("Time to train", heads, lines), note(MEDIANS), _connected(report, points)]
    return Section("time_to_train", title, body, "", answers)


def _minutes(point: Trained) -> Spread | None:
    """Return the length of whole trainings, without tests between epochs."""
    return point.over(lambda lesson: lesson.seconds / 60)


def _connected(report: Report, points: Iterable[tuple[Series, Trained]]) -> Content:
    """Return the table of which workers are connected; None where none reports it."""
    lines, longer = [], ""
    for one, point in points:
        reported = (process.about.workers for row in point.rows for process in row.processes)
        workers = next(filter(None, reported), ())
        longer = f", the first {WORKERS} workers of larger groups" if len(workers) > WORKERS else longer
        for worker in workers[:WORKERS]:
            everyone = len(worker.peers) > 3 and len(worker.peers) == len(workers) - 1
            peers = "all others" if everyone else _few(worker.peers)
            cells: Cells = [report.head(one.name, point.rows[0]), str(point.devices), str(worker.rank)]
            lines.append([*cells, worker.host, ", ".join(worker.addresses) or "–", peers, _few(worker.others)])
    heads = "Strategy | devices | rank | host< | address< | connected to ranks< | other processes at<"
    title = "Who is connected to whom"
    return folded(f"{title}{longer}", table(title, heads, lines)) if lines else None


def _few(values: Sequence[object]) -> str:
    words = ", ".join(map(str, values[:8])) or "–"
    return f"{words}, … ({len(values)})" if len(values) > 8 else words


def epochs(report: Report) -> Section | None:
    """Return the first and the second epoch of every training, timed one by one."""
    learnt = (row for row in report.rows if row.lessons)
    groups = grouped(learnt, lambda row: f"{row.case.workload} on {row.case.data_name}")
    if not groups:
        return None
    body: Cells = []
    warmest: tuple[float, str] = (0.0, "")
    for title, members in groups.items():
        trainings = trained(members)
        panels = grouped(trainings, lambda one: (one.case.input.repeat, one.case.batch)).values()
        charts = [chart for several in panels if (chart := _warming(report, title, several))]
        body += report.few("epochs", charts, DRAWN)
        lessons = [lesson for row in members for lesson in row.lessons]
        opened = any(lesson.opening_seconds for lesson in lessons)
        more = any(len(lesson.epochs) > SECOND for lesson in lessons)
        heads = "Case | epochs" + " | opening, s" * opened + " | first, s | second, s | first ÷ second"
        heads += " | first, samples/s | second, samples/s! | accuracy after the first | after the second"
        heads += " | after the last" * more + " | trainings"
        lines = []
        for one in trainings:
            first, second = one.took(FIRST), one.took(SECOND)
            ratio = first.value / second.value if first and second else None
            warmest = max(warmest, (ratio or 0.0, one.name))
            cells = [one.name, str(max(len(lesson.epochs) for lesson in one.lessons))]
            cells += [middle(one.over(lambda lesson: lesson.opening_seconds))] * opened
            cells += [middle(first), middle(second), number(ratio), middle(_first(one)), middle(_second(one))]
            for at in (0, 1, -1)[: 2 + more]:
                known = [lesson.epochs[at].accuracy for lesson in one.lessons if len(lesson.epochs) > at]
                cells.append(accuracy(spread(known)))
            lines.append([*cells, str(len(one.lessons))])
        shared = common([one.case.on(seed=0) for one in trainings])
        body.append(table(f"Epochs: {title}", heads, Body(lines, title, shared)))
    most, warming = warmest
    headline = f"The first epoch takes up to {number(most)} times as long as the second" if most else "First epochs"
    return Section("epochs", headline, body, f"{warming} most." if most else "")


def _warming(report: Report, title: str, members: Sequence[Trained]) -> Rows | None:
    """Return the second epoch's speeds as bars, with the first one's as diamonds; None of fewer than two."""
    kept, warning = kept_whole(members, lambda one: one.rows)
    shown = [one for one in kept if _second(one)]
    if len(shown) < 2:
        return None
    scale = linear(max(found.value for one in shown for found in (_first(one), _second(one)) if found))
    entries = []
    for name, one in named(shown, seed=0):
        first, second = _first(one), _second(one)
        assert second
        found = Interval(second.value, second.low, second.high, second.of)
        drawn = bar(scale, found, second=first.value if first else None)
        words = f"first epoch {middle(first)}, second {middle(second)} samples/s"
        entries.append(report.entry(name, one.rows[0], drawn, number(second.value), words))
    entries.sort(key=lambda entry: entry.words)
    case, axis = members[0].case, "samples/s of the second epoch"
    setting = f"{title} · {case.input.repeat}× data · batch {case.batch} per device"
    return Rows("Second epoch; ◆ the first", setting, scale, entries, "samples/s", axis, warning=warning)
