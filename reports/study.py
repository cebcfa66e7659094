"""The tables and figures of the study that the plan `paper` repeats, under its numbers, of what a run has measured.

S. Shi, Q. Wang and X. Chu, "Performance Modeling and Evaluation of Distributed Deep Learning Frameworks on GPUs",
arXiv 1711.05979. None of the study's own results stands here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from reports.bars import bars
from reports.figure import Chart, Figure, colour
from reports.lines import Line, lines_figure
from reports.matrix import Matrix, anywhere, matrix
from reports.names import common, names
from reports.networks import Network, networks_of
from reports.panels import Panel, beside_others, by_network
from reports.scaling import of_a_node, on_nodes
from reports.topology import topology
from suite.analysis.rows import Row
from suite.analysis.stats import Interval, ratio
from suite.results.run_folder import RunFolder
from suite.text import grouped
from suite.worker.pass_kinds import STAGED

NETWORKS = ("alexnet", "googlenet", "resnet50", "resnet152")  # the plan's; another network has none of its numbers
KERNELS = {"onednn": "oneDNN", "cudnn_autotune": "cuDNN's autotuning"}  # by the knob that switches them
ONE_DEVICE = Interval(1.0, 1.0, 1.0, 1)


@dataclass(frozen=True)
class Kernels:
    """The same training with a vendor's kernels or their tuning, and without."""

    what: str
    name: str
    on: Row
    off: Row
    ratio: Interval  # of their speeds


@dataclass(frozen=True)
class Study:
    """Everything by the number that it has in the study."""

    figure_1: Figure
    table_4: list[Network]
    table_5: list[Panel]
    figure_3: list[Chart]
    figure_4: list[Chart]
    table_6: list[Panel]
    table_7: list[Panel]
    figure_5: list[Chart]
    table_8: Matrix | None
    kernels: list[Kernels]


def study_of(folder: RunFolder, rows: Iterable[Row]) -> Study | None:
    """Of a run of the plan `paper`; its cases that were measured stage by stage are the study's.

    None where none of the study's networks was measured, as in a plan of one's own by the same name.
    """
    measured = [row for row in rows if row.rates and row.case.workload in NETWORKS]
    if not measured:
        return None
    staged = [row for row in measured if STAGED in row.case.passes]
    panels = by_network(staged)
    node, nodes = (
        [row for row in staged if row.several_devices and bool(of_a_node(row.case)) == over] for over in (False, True)
    )
    sizes = {(row.case.workload, of_a_node(row.case)) for row in nodes}
    over = [
        row
        for row in staged
        if row.several_devices and (row.case.workload, row.case.placement.devices_per_node) in sizes
    ]
    return Study(
        figure_1=topology(folder.hosts()),
        table_4=networks_of(folder, measured),
        table_5=by_network(row for row in staged if not row.several_devices and row.budget),
        figure_3=[chart for panel in panels if (chart := _iterations(panel))],
        figure_4=[chart for panel in by_network(node) if (chart := _speed_ups(panel, False))],
        table_6=by_network(row for row in node if row.budget),
        table_7=by_network(row for row in nodes if row.budget),
        figure_5=[chart for panel in by_network(over) if nodes and (chart := _speed_ups(panel, True))],
        table_8=matrix(panels, least=1),
        kernels=_kernels(measured),
    )


def _iterations(panel: Panel) -> Chart | None:
    """Figure 3: seconds per iteration on one device."""
    kept, warning = beside_others([row for row in panel.rows if not row.several_devices])
    if not kept:
        return None
    cases = [row.case for row in kept]
    adapters = list(dict.fromkeys(case.adapter for case in cases))
    shown = Panel(f"{panel.title}: seconds per iteration on one device", kept, names(cases), common(cases), warning)
    seconds = [_per_iteration(row) for row in kept]
    shades = [colour(adapters.index(case.adapter)) for case in cases]
    return shown, bars(shown, seconds, shades, "seconds per iteration")


def _per_iteration(row: Row) -> Interval:
    assert row.rate is not None  # of a panel's rows
    samples, rate = row.case.global_batch, row.rate
    return Interval(samples / rate.value, samples / rate.high, samples / rate.low, rate.processes)


def _speed_ups(panel: Panel, over_nodes: bool) -> Chart | None:
    """Figures 4 and 5: a line a strategy, over nodes a line for each number of devices; speeds over one device's."""
    kept, warning = beside_others(panel.rows)
    series = grouped(kept, lambda row: (anywhere(row.case).id, row.case.placement.devices_per_node * over_nodes))
    lines, firsts = [], []
    for members in series.values():
        points = {row.case.placement.device_count: _speed_up(row) for row in members if row.scaling}
        if points:
            points = {1: ONE_DEVICE, **dict(sorted(points.items()))}
            firsts.append(members[0])
            ends = [each.low for each in points.values()], [each.high for each in points.values()]
            lines.append(Line("", list(points), [each.value for each in points.values()], *ends))
    if not lines:
        return None
    called = [
        on_nodes(name, row.case.placement.devices_per_node * over_nodes)
        for name, row in zip(names([anywhere(row.case) for row in firsts]), firsts, strict=True)
    ]
    lines = [replace(line, name=name) for line, name in zip(lines, called, strict=True)]
    where = "over nodes" if over_nodes else "within a node"
    shown = Panel(f"{panel.title}: speed-up {where}", firsts, called, common([row.case for row in kept]), warning)
    return shown, lines_figure(lines, "devices", "speed-up over one device", "lines+markers", log=True)


def _speed_up(row: Row) -> Interval:
    assert row.scaling is not None
    return row.scaling.efficiency.scaled(row.case.placement.device_count)


def _kernels(rows: Iterable[Row]) -> list[Kernels]:
    """Cases that differ in such a knob alone."""
    found = []
    for knob, what in KERNELS.items():
        knowing = [row for row in rows if knob in row.case.knobs]
        for members in grouped(knowing, partial(_apart_from, knob)).values():
            by = {row.case.knobs[knob]: row for row in members}
            on, off = by.get("on"), by.get("off")
            if on and off and on.rates and off.rates:
                case = on.case
                name = f"{case.adapter}/{case.strategy} {case.workload} batch {case.batch}"
                found.append(Kernels(what, name, on, off, ratio(on.rates, off.rates)))
    return found


def _apart_from(knob: str, row: Row) -> str:
    return replace(row.case, knobs={**row.case.knobs, knob: ""}).id
