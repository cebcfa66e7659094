"""The tables and figures of the study that the plan `paper` repeats, under its numbers, of what a run has measured.

S. Shi, Q. Wang and X. Chu, "Performance Modeling and Evaluation of Distributed Deep Learning Frameworks on GPUs",
arXiv 1711.05979. None of the study's own results stands here.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from markupsafe import Markup

from stagebench.reports.charts.html import Cells, Content, listing, measured, small, table, tag
from stagebench.reports.charts.lines import Line, Lines, led
from stagebench.reports.charts.rows import Rows
from stagebench.reports.pages.communication import gradient_bytes, hidden_part
from stagebench.reports.pages.evidence import software_of
from stagebench.reports.pages.run import Report, Section, named
from stagebench.reports.pages.scaling import anywhere, at_a_glance, of_a_node, on_nodes, place_of, place_words, speed_up
from stagebench.suite import plugins
from stagebench.suite.analysis.panels import Panel, beside_others, by_network, labels
from stagebench.suite.analysis.panels import title as framework
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.stats import Interval, ratio
from stagebench.suite.analysis.wording import mebibytes, memory, number
from stagebench.suite.plan.networks import network_of
from stagebench.suite.results.records import Host
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import grouped
from stagebench.suite.worker.pass_kinds import STAGED
from stagebench.workloads.graph import Graph

PLAN = "paper"
NETWORKS = ("alexnet", "googlenet", "resnet50", "resnet152")  # the plan's; another network has none of its numbers
KERNELS = {"onednn": "oneDNN", "cudnn_autotune": "cuDNN's autotuning"}  # by the knob that switches them
ONE_DEVICE = Interval(1.0, 1.0, 1.0, 1)
DRAWN = 8  # nodes


def study(report: Report) -> Section | None:
    """Return the study's tables of a run of the plan `paper`; those measured stage by stage are the study's.

    None where none of the study's networks was measured, as in a plan of one's own by that name.
    """
    rows = [row for row in report.rows if row.rates and row.case.workload in NETWORKS]
    if report.plan.name != PLAN or not rows:
        return None
    staged = [row for row in rows if STAGED in row.case.passes]
    several = [row for row in staged if row.several_devices]
    node, nodes = ([row for row in several if bool(of_a_node(row.case)) == over] for over in (False, True))
    sizes = {(row.case.workload, of_a_node(row.case)) for row in nodes}
    over = by_network(row for row in several if (row.case.workload, row.case.placement.devices_per_node) in sizes)
    one = by_network(row for row in staged if not row.several_devices and row.budget)
    each, hosts, drawn = by_network(staged), report.folder.hosts(), partial(report.drawn, "study")
    parts: dict[str, Content] = {
        "Table 2: hardware of each node": _hardware(hosts),
        "Figure 1: nodes and links": topology(hosts),
        "Table 3: software": _software(report),
        "Table 4: networks": _networks(report, rows),
        "Table 5: seconds of each stage on one device": _stages(report, one),
        "Figure 3: seconds per iteration on one device": drawn(_iterations(report, panel) for panel in each),
        "Figure 4: speed-up within a node": drawn(_speed_ups(panel, False) for panel in by_network(node)),
        "Table 6: aggregating gradients within a node": _aggregating(report, "within a node", node),
        "Table 7: aggregating gradients over nodes": _aggregating(report, "over nodes", nodes),
        "Figure 5: speed-up over nodes": drawn(_speed_ups(panel, True) for panel in over),
        "Table 8: samples/s": at_a_glance(report, each, least=1),
        "Kernels of the vendors": _kernels(report, rows),
    }
    first = (
        "The tables and figures of this study by Shi, Wang and Chu (arXiv 1711.05979), under its numbers, with "
        "this run’s values. A table or figure for which this run measured nothing is missing."
    )
    body = [tag("p", first), [[tag("h3", title), content] for title, content in parts.items() if content]]
    return Section("study", "Performance Modeling and Evaluation of Distributed Deep Learning Frameworks on GPUs", body)


def _hardware(hosts: Mapping[str, Host]) -> Content:
    lines = []
    for name, host in hosts.items():
        found = host.machine
        cpu = f"{f'{found.sockets} × ' if found.sockets else ''}{found.cpu or 'unknown'}"
        several = ["; ".join(words) or "–" for words in (found.gpus, found.gpu_links, found.networks)]
        lines.append([name, cpu, str(host.cores or host.cores_installed or "–"), memory(found.memory_bytes), *several])
    return table("Hardware", "Node | CPU< | cores | memory | GPUs< | PCIe< | network<", lines) if hosts else None


def topology(hosts: Mapping[str, Host]) -> Content:
    """Return nodes with their GPUs, and the network that joins them, as nested lists that a reader hears in order."""
    if not hosts:
        return None
    shown = list(hosts.items())[:DRAWN]
    networks = dict.fromkeys(network for _, host in shown for network in host.machine.networks)
    nodes = []
    for name, host in shown:
        names, links = host.machine.gpus, host.machine.gpu_links
        links = links if len(links) == len(names) else [""] * len(names)
        pairs = zip(names, links, strict=True)
        gpus = ([gpu.partition(" (")[0], small(f" {link}") if link else None] for gpu, link in pairs)
        cpu = f"{host.machine.cpu or 'CPU unknown'}, {host.cores or host.cores_installed or '?'} cores"
        nodes.append([tag("strong", name), f" {cpu}", listing(gpus)])
    more = f"; {len(hosts) - DRAWN} more nodes" if len(hosts) > DRAWN else ""
    return listing([[f"{', '.join(networks) or 'networks unknown'}{more}", listing(nodes)]], "ul.nodes")


def _software(report: Report) -> Content:
    lines = []
    for used in software_of(report.rows):
        words = ["; ".join(used.interpreters), "; ".join(used.transports) or "–"]
        lines.append([framework(used.adapter), ", ".join(used.versions), *words])
    return table("Software", "Framework | versions< | interpreter< | transport<", lines)


def _networks(report: Report, rows: Iterable[Row]) -> Content:
    lines = []
    for name, own in grouped(rows, lambda row: row.case.workload).items():
        layers, parameters, _ = network(report.folder, own)
        batches = ", ".join(map(str, sorted({row.case.batch for row in own})))
        lines.append([name, str(layers or "–"), number(parameters), batches])
    return table("Networks", "Network | layers | parameters | batch per device", lines)


def network(folder: RunFolder, rows: Sequence[Row]) -> tuple[int | None, int | None, str]:
    """Return (layers, parameters, source) of the rows' network; of one that has changed, what the run knows."""
    case = rows[0].case
    graph, known = network_of(folder.path, case), plugins.workloads().get(case.workload)
    counted = next((row.proof.parameter_count for row in rows if row.proof and row.proof.parameter_count), None)
    source = known.source if known and graph and known.graph().digest == graph.digest else ""
    return depth(graph) if graph else None, graph.parameter_count if graph else counted, source


def depth(graph: Graph) -> int:
    """Return the layers with weights on the longest way through a network: AlexNet 8, GoogLeNet 22, ResNet-50 50."""
    behind: dict[str, int] = {}
    for layer in graph.layers:
        before = max((behind.get(name, 0) for name in layer.inputs), default=0)
        behind[layer.name] = before + layer.has_weights
    return max(behind.values())


def _stages(report: Report, panels: Sequence[Panel]) -> Content:
    def cells(row: Row) -> Cells:
        b = row.budget
        assert b
        return [*map(number, (b.io, b.h2d, b.forward, b.backward, b.update, b.other, b.native, b.io_only))]

    heads = "Network, framework | reading | host to device | forward | backward | update | other | total!"
    return table("Stages on one device", f"{heads} | reading alone", *report.bodies(panels, cells)) if panels else None


def _aggregating(report: Report, where: str, every: Sequence[Row]) -> Content:
    def cells(row: Row) -> Cells:
        b = row.budget
        assert b
        found = [place_words(*place_of(row.case)), mebibytes(gradient_bytes(row)), number(b.comm_only)]
        return [*found, number(b.communication), hidden_part(b, b.comm_only), number(b.native)]

    rows = [row for row in every if row.budget]
    heads = "Network, framework | devices | gradients, MiB | alone, s | exposed, s! | hidden, of alone | iteration, s"
    return table(f"Aggregating gradients {where}", heads, *report.bodies(by_network(rows), cells)) if rows else None


def _iterations(report: Report, panel: Panel) -> Rows | None:
    kept, warning = beside_others([row for row in panel.rows if not row.several_devices])
    drawn = []
    for name, row in named(kept):
        assert row.rate
        ends = [row.case.global_batch / rate for rate in (row.rate.value, row.rate.high, row.rate.low)]
        drawn.append((name, row, Interval(ends[0], ends[1], ends[2], row.rate.processes), "rest"))
    if not drawn:
        return None
    title = f"{min(drawn, key=lambda each: each[2].value)[0].words} takes least"
    return report.bars(title, f"{panel.title} · seconds per iteration", drawn, "seconds", warning=warning)


def _speed_ups(panel: Panel, over_nodes: bool) -> Lines | None:
    """Return a line a strategy, over nodes a line for each number of devices; speeds over one device's."""
    kept, warning = beside_others(panel.rows)
    series = grouped(
        (row for row in kept if row.scaling),
        lambda row: (anywhere(row.case).id, row.case.placement.devices_per_node * over_nodes),
    )
    lines = []
    called = labels([anywhere(group[0].case) for group in series.values()])
    for name, ((_, per_node), group) in zip(called, series.items(), strict=True):
        ups = {row.case.placement.device_count: speed_up(row) for row in group}
        points = dict(sorted({1: ONE_DEVICE, **ups}.items()))
        lines.append(Line.of(on_nodes(name, per_node).words, list(points), points.values()))
    if not lines:
        return None
    lines, best = led(lines)
    counts = sorted({count for line in lines for count in line.x})
    setting = f"{panel.title} · speed-up {'over nodes' if over_nodes else 'within a node'}"
    shown, up = [Line("ideal", counts, counts, kind="ideal"), *lines], "speed-up over one device"
    return Lines(f"{best.name} gains most", setting, shown, "devices", up, "x", ticks=counts, warning=warning)


def _kernels(report: Report, rows: Iterable[Row]) -> Markup | None:
    """Return the same trainings with a vendor's kernels or their tuning, and without."""
    every, lines = list(rows), []
    for knob, what in KERNELS.items():
        for members in grouped((row for row in every if knob in row.case.knobs), partial(_apart_from, knob)).values():
            by = {row.case.knobs[knob]: (row, row.rates) for row in members if row.rates}
            if "on" in by and "off" in by:
                (on, fast), (off, slow), case = by["on"], by["off"], by["on"][0].case
                gain = ratio(fast, slow)
                name = f"{what} · {framework(case.adapter)} {case.strategy} {case.workload} batch {case.batch}"
                cells = [report.head(name, on), measured(on.rate), measured(off.rate), measured(gain)]
                lines.append([*cells, gain.verdict])
    heads = "Case | on, samples/s | off, samples/s | on ÷ off! | verdict<"
    return table("Kernels", heads, lines) if lines else None


def _apart_from(knob: str, row: Row) -> str:
    return row.case.on(knobs={**row.case.knobs, knob: ""}).id
