"""The cost of reading: synthetic, memory and disk side by side, readers alone, and the bottleneck in words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from stagebench.reports.charts.html import Body, Cells, measured, note, table
from stagebench.reports.charts.rows import Rows
from stagebench.reports.pages.run import Report, Section, named
from stagebench.suite.analysis.inputs import Fed, Group, groups
from stagebench.suite.analysis.panels import SHOWN, beside_others, differences, kept_whole, titles
from stagebench.suite.analysis.rows import Row
from stagebench.suite.analysis.wording import listed, milliseconds, number, share
from stagebench.suite.contracts.case import Case
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker.case_parts import Input

SHADES = {"synthetic": "rest", "memory": "io", "disk": "h2d"}
KEY = {"rest": "synthetic", "io": "from memory", "h2d": "from disk"}
UNFED: dict[str, Any] = {"data": "", "passes": (), "input": Input(), "readers": 1}  # a case but for what feeds it
NETWORK_AND_DATA = attrgetter("case.workload", "case.data")
DEVICES = attrgetter("case.placement.device_count")
# What cases of a chart share.
PLACE = attrgetter(
    "workload",
    "graph_digest",
    "batch",
    "precision",
    "tuning",
    "optimiser",
    "clip_norm",
    "placement.device",
    "placement.nodes",
    "placement.device_count",
    "placement.threads",
)


def inputs(report: Report) -> Section | None:
    """Return the cost of input; None when no two cases differ in their input alone, and no readers can be compared."""
    rows = [row for row in report.rows if row.measured]
    found, read = groups(rows), [row for row in rows if row.reader]
    # Readers on the fewest devices that were measured with a network and data set.
    fewest = {at: min(map(DEVICES, several)) for at, several in grouped(read, NETWORK_AND_DATA).items()}
    read = [row for row in read if DEVICES(row) == fewest[NETWORK_AND_DATA(row)]]
    by_data = grouped(read[:SHOWN], NETWORK_AND_DATA).values()
    readers = [chart for several in by_data if (chart := _readers(report, several))]
    if not found and not readers:
        return None
    heads = "Input | samples/s! | of the first | waiting, ms | of the iteration | computing | reader alone, samples/s"
    bodies, answers = [], []
    titled = titles([group.cases[0].row.case.on(**UNFED) for group in found])
    named_groups = named((group.cases[0].row for group in found), **UNFED)
    for group, (name, _), setting in zip(found, named_groups, titled, strict=True):
        title, lines, several = f"{name.words} · {setting}", [], []
        for what, fed in zip(_described(group.cases), group.cases, strict=True):
            row, part = fed.row, fed.row.waited_share
            cells: Cells = [report.head(what, row), measured(row.rate), measured(fed.gap) if fed.gap else ""]
            cells += [milliseconds(row.waited), share(part.value if part else None), share(row.computing_share)]
            cells.append(measured(row.reader.interval if row.reader else None))
            fed_by = row.case.input
            how = f"{counted(row.case.readers, 'reader')}, {fed_by.format}, page cache {fed_by.page_cache}, "
            how += f"{fed_by.augment} crop"
            lines.append([*cells, how if fed.mode != "synthetic" else "", words(fed)])
            several += [f"{what}: {words(fed)}"] if fed.bottleneck else []
        bodies.append(Body(lines, title))
        answers += [f"{title}. {'; '.join(several[:8])}."] if several else []
    body: Cells = [report.drawn("input", _modes(report, found))]
    if bodies:
        body.append(table("Inputs", f"{heads} | read by< | bottleneck<", *bodies))
        body.append(note("Cases under one heading differ only in their input. Small numbers: 95 % intervals."))
    body += [report.cut(read, "cases with a reader"), report.drawn("input", readers)] if readers else []
    title, also = headline(found)
    return Section("input", title, body, also, answers)


def headline(found: Sequence[Group]) -> tuple[str, str]:
    """Return what holds most trainings up that read."""
    read = [fed for group in found for fed in group.cases if fed.bottleneck]
    if not read:
        return "No bottleneck was measured", ""
    counts = Counter("reader" if fed.bottleneck in ("reader", "cores") else fed.bottleneck for fed in read)
    slow = counts["reader"]
    open_ = counts["open"] + counts["neither"]
    also = f"It is not determined in {open_}." if open_ else ""
    if slow:
        where = "all" if slow == len(read) else f"{slow} of"
        return f"Reading holds up {where} {len(read)} trainings that read", also
    if counts["network"] == len(read):
        return f"The network is the bottleneck in all {len(read)} trainings that read", ""
    return f"Reading detectably holds up none of {len(read)} trainings", also


def words(fed: Fed) -> str:
    """Return the bottleneck in a sentence."""
    found, waits = fed.bottleneck, _waits(fed)
    if found is None:
        return "nothing is read" if fed.mode == "synthetic" else ""
    if fed.delivers is None:
        ends = {
            "reader": "reading holds the network up",
            "network": "the network is the bottleneck",
            "open": "whether reading holds the network up is not determined",
        }
        return f"{waits}: {ends[found]}"
    rates = f"the reader delivers {number(fed.delivers)} samples/s, the network takes {number(fed.takes)}"
    return {
        "reader": f"{rates}: the reader is the bottleneck",
        "network": f"{rates}: the network is the bottleneck",
        "neither": f"{rates}: no detectable difference",
        "cores": f"alone {rates}, yet {waits}: during training the reader has fewer cores",
        "open": f"alone {rates}, and {waits}: what holds it up is not determined",
    }[found]


def _waits(fed: Fed) -> str:
    within = fed.row.waited_share
    if within and within.low <= 0.0 < within.high and fed.waits is None:
        return "how much of an iteration is waiting is not determined"
    waiting = within is not None and within.value > 0
    part = share(within.value if within else None)
    return f"{part} of an iteration is waiting" if waiting else "reading adds nothing to an iteration"


def _described(several: Sequence[Fed]) -> list[str]:
    """Return each one's mode, and how its reading differs from that of the others of that mode."""

    def fed_as(fed: Fed) -> Case:
        case = fed.row.case
        return Case("", "", "", data=case.data, input=case.input, readers=case.readers)

    found = []
    for fed in several:
        alike = [fed_as(other) for other in several if other.mode == fed.mode]
        differing = differences([fed_as(fed), *alike])[0]
        found.append(" · ".join([fed.mode, *(word for word in differing if not word.startswith("from "))]))
    return found


def _modes(report: Report, found: Sequence[Group]) -> Iterator[Rows]:
    """Yield a chart for each network and place in which several modes were measured, all frameworks in it."""
    several = [fed for group in found if len(group.modes) > 1 for fed in group.cases]
    for members in grouped(several, lambda fed: PLACE(fed.row.case)).values():
        shown, warning = kept_whole(members, lambda fed: [fed.row])
        if shown:
            bars = []
            for (name, row), what, fed in zip(
                named((fed.row for fed in shown), **UNFED), _described(shown), shown, strict=True
            ):
                detail = " · ".join(filter(None, [name.detail, what]))
                bars += [(name._replace(detail=detail), row, row.rate, SHADES[fed.mode])] if row.rate else []
            sets = sorted({fed.row.case.data_name for fed in shown} - {"synthetic"})
            setting = f"{titles([shown[0].row.case.on(**UNFED)])[0]} · {listed(sets) if sets else 'synthetic'}"
            title, _ = headline([group for group in found if group.cases[0] in shown])
            yield report.bars(title, setting, bars, key=KEY, warning=warning)


def _readers(report: Report, members: list[Row]) -> Rows | None:
    """Return the speeds of readers alone; None where they are all of one kind."""
    kept, warning = beside_others(members)
    if len({(row.case.adapter, row.case.readers, str(row.case.input)) for row in kept}) < 2:
        return None
    bars = [(name, row, row.reader.interval, SHADES[row.case.input.mode]) for name, row in named(kept) if row.reader]
    title = f"{max(bars, key=lambda each: each[2].value)[0].words} reads fastest"
    setting = f"{kept[0].case.workload} · {kept[0].case.data_name} · readers alone"
    return report.bars(title, setting, bars, key=KEY, warning=warning)
