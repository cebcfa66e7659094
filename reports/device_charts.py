"""The charts of epochs over devices, among them the figures 5a to 5e of the data-parallel article (docs/plans.md).

Of our rows and of imported ones alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reports.devices import (
    FIRST,
    SECOND,
    Epochs,
    OverDevices,
    Series,
    at_one_size,
    groups_of,
    middle_batch,
    panel_of,
    repeats_of,
)
from reports.figure import Chart
from reports.lines import Line, from_zero_up, lines_figure
from suite.analysis.stats import Spread

Value = Callable[[Epochs], Spread | None]
BY_SIZE = "by size of the data set"
LINES = 6  # that a chart can hold and be read: two strategies at three batches
# The article's large network, by its code, else by its text; of each framework the first of these strategies that was
# tried: as its results are imported, as it trained, or what comes nearest.
SMALL, LARGE = "mnist_small", ("mnist_large", "mnist_stated")
OWN = {"pytorch": ("data-parallel", "dp", "ddp"), "tensorflow": ("data-parallel", "keras_fit", "mirrored")}


@dataclass(frozen=True)
class DeviceCharts:
    """All charts of a run's series over devices."""

    epochs: list[Chart]
    whole: list[Chart]  # minutes of whole trainings
    article: bool  # whether the epochs' charts bear the article's numbers


def device_charts(devices: OverDevices, article: bool = False) -> DeviceCharts:
    """Of every series.

    `article`: it is the article's experiment, and its figures bear their numbers; imported lines of its own do anyway.
    """
    found = [one for _, one in devices.named]
    figures = _figures(found) if article or devices.imported else {}
    return DeviceCharts(_charts(found, figures), _whole([one for _, one in devices.whole]), bool(figures))


def _whole(found: list[Series]) -> list[Chart]:
    """Minutes of a whole training by devices, a chart a network and data set."""
    groups = groups_of(found, lambda case: (case.workload, case.data))
    drawn = [_over_devices("minutes of a whole training", group, _minutes) for group in groups]
    return [chart for chart in drawn if chart]


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
    """By the article's numbers, of its networks and strategies only: 5b to 5e are of the large network.

    At its sizes where it fixes one: 5a and 5b on the largest data set, 5a and 5c to 5e at the middle batch, 5d on the
    smallest set.
    """
    large = next((name for name in LARGE if any(one.case.workload == name for one in found)), None)
    tried = {(one.case.adapter, one.case.strategy) for one in found}
    ours = {(adapter, next((one for one in its if (adapter, one) in tried), None)) for adapter, its in OWN.items()}
    own = [one for one in found if (one.case.adapter, one.case.strategy) in ours]
    _, *of_large = _drawn([one for one in own if one.case.workload == large])
    both = [one for one in own if one.case.workload in (SMALL, large)]
    alike = at_one_size(both)
    of_both = _drawn(alike)[0] if len({one.case.workload for one in alike}) > 1 else []
    drawn = zip("abcde", (of_both, *of_large), strict=True)
    return {f"5{letter}": charts[0] for letter, charts in drawn if charts}


def _drawn(found: list[Series]) -> list[list[Chart]]:
    """Charts of the five kinds of the article's figures, in their order; what does not vary has none."""
    if not found:
        return [[], [], [], [], []]
    repeats, middle = repeats_of(found), middle_batch(found)
    by_batch = _together([one for one in found if one.case.input.repeat == max(repeats)])
    by_repeat = _together([one for one in found if one.case.batch == middle])
    epochs = [one for one in found if one.case.batch == middle and one.case.input.repeat == min(repeats)]
    sizes = groups_of(found, lambda case: (case.data, case.input.repeat, case.batch))
    batches = len({one.case.batch for one in found})
    drawn = (
        [_by_devices("by strategy and network", group, _rate) for group in sizes],
        [_by_devices("by batch", group, _rate) for group in by_batch if batches > 1],
        [_by_devices(BY_SIZE, group, _seconds, "seconds") for group in by_repeat if len(repeats) > 1],
        [_first_and_second(group) for group in groups_of(epochs, lambda case: (case.workload, case.data))],
        [_by_devices(BY_SIZE, group, _rate) for group in by_repeat if len(repeats) > 1],
    )
    return [[chart for chart in charts if chart] for charts in drawn]


def _what(chart: Chart) -> tuple[str, ...]:
    """What a chart shows: a second one of the same is not drawn."""
    panel, _ = chart
    return panel.title, *(row.id for row in panel.rows)


def _together(found: list[Series]) -> list[list[Series]]:
    """A chart for each network and data set, both frameworks in it as in the article; a strategy's own if too full."""
    groups = groups_of(found, lambda case: (case.workload, case.data))
    if max(map(len, groups), default=0) <= LINES:
        return groups
    return groups_of(found, lambda case: (case.adapter, case.strategy, str(case.knobs), case.workload, case.data))


def _rate(point: Epochs) -> Spread | None:
    return point.rate(SECOND)


def _seconds(point: Epochs) -> Spread | None:
    return point.seconds(SECOND)


def _minutes(point: Epochs) -> Spread | None:
    return point.minutes


def _by_devices(how: str, group: list[Series], value: Value, unit: str = "samples/s") -> Chart | None:
    return _over_devices(f"{unit} of the second epoch, {how}", group, value, f"{unit}, second epoch")


def _over_devices(title: str, group: list[Series], value: Value, up: str = "") -> Chart | None:
    shown, panel = panel_of(title, group)
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
    shown, panel = panel_of("samples/s of the first epoch against the second", group)
    lines = []
    for name, one in zip(panel.names, shown, strict=True):
        pairs = [(point.rate(FIRST), point.rate(SECOND)) for point in one.points]
        both = [(first.value, second.value) for first, second in pairs if first and second]
        lines.append(Line(name, [first for first, _ in both], [second for _, second in both]))
    figure = lines_figure(lines, "samples/s, first epoch", "samples/s, second epoch", "markers")
    return (panel, figure) if lines else None
