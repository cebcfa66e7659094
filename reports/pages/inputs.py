"""The cost of reading: synthetic, memory and disk side by side, readers alone, and the bottleneck in words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reports.charts.html import Body, Content, measured, note, table
from reports.charts.rows import Rows
from reports.pages.run import Report, Section
from suite.analysis.inputs import Fed, Group, groups
from suite.analysis.panels import SHOWN, Name, beside_others, differences, kept_whole, labels, titles
from suite.analysis.rows import Row
from suite.analysis.wording import listed, milliseconds, number, share
from suite.contracts.case import Case
from suite.text import grouped
from suite.worker.case_parts import Input

SHADES = {"synthetic": "rest", "memory": "io", "disk": "h2d"}
KEY = {"rest": "synthetic", "io": "from memory", "h2d": "from disk"}


def inputs(report: Report) -> Section | None:
    """Return the cost of input; None when no two cases differ in their input alone, and no readers can be compared."""
    rows = [row for row in report.rows if row.measured]
    found, read = groups(rows), _on_fewest_devices(row for row in rows if row.reader)
    members = grouped(read[:SHOWN], _network_and_data).values()
    readers = [chart for several in members if (chart := _readers(report, several))]
    if not found and not readers:
        return None
    heads = "Input | samples/s! | of the first | waiting, ms | of the iteration | computing | reader alone, samples/s"
    bodies, answers = [], []
    for title, group, names in _named(found):
        lines: list[list[Content]] = []
        for name, fed in zip(names, group.cases, strict=True):
            row, gap = fed.row, measured(fed.gap) if fed.gap else ""
            part = row.waited_share.value if row.waited_share else None
            cells = [report.head(name, row), measured(row.rate), gap, milliseconds(row.waited)]
            cells += [share(part), share(row.computing_share)]
            lines.append([*cells, measured(row.reader.interval if row.reader else None), _reading(fed), words(fed)])
        bodies.append(Body(lines, title))
        several = [f"{name}: {words(fed)}" for name, fed in zip(names, group.cases, strict=True) if fed.bottleneck]
        answers += [f"{title}. {'; '.join(several[:8])}."] if several else []
    body: list[Content] = [report.drawn("input", _modes(report, found))]
    if bodies:
        body.append(table("Inputs", f"{heads} | read by< | bottleneck<", *bodies))
        body.append(note("Cases under one heading differ only in their input. Small numbers: 95 % intervals."))
    body += [report.cut(read, "cases with a reader"), report.drawn("input", readers)] if readers else []
    title, also = headline(found)
    return Section("input", title, body, also, answers, _DEFINITIONS, "Input")


_DEFINITIONS = (
    "Synthetic: data lie on the device before training begins. Memory: decoded once, then read from memory. Disk: "
    "read and decoded during training. Waiting: what reading and copying add to a native step (native − resident, "
    "measured in turns). Computing: the share of an iteration without that wait. Reader alone: what the input delivers "
    "with all cores to itself (io only), on the fewest devices that were measured with these data. The network takes: "
    "its speed on synthetic data where that was measured, else the case’s own speed without its waiting. A dash: no "
    "pass could tell."
)


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


def _named(found: Sequence[Group]) -> list[tuple[str, Group, list[str]]]:
    """Return (title, cases equal but for their input, a name for each)."""
    cases = [_unfed(group.cases[0].row.case) for group in found]
    called = [f"{name.words} · {title}" for name, title in zip(labels(cases), titles(cases), strict=True)]
    return [(title, group, _described(group.cases)) for title, group in zip(called, found, strict=True)]


def _unfed(case: Case) -> Case:
    return replace(case, data="", passes=(), input=Input(), readers=1)


def _described(several: Sequence[Fed]) -> list[str]:
    """Return each one's mode, and how its reading differs from that of the others of that mode."""
    found = []
    for fed in several:
        alike = [other.row.case for other in several if other.mode == fed.mode]
        fed_as = [Case("", "", "", data=case.data, input=case.input, readers=case.readers) for case in alike]
        own = replace(fed_as[0], data=fed.row.case.data, input=fed.row.case.input, readers=fed.row.case.readers)
        differing = differences([own, *fed_as])[0]
        found.append(" · ".join([fed.mode, *(word for word in differing if not word.startswith("from "))]))
    return found


def _reading(fed: Fed) -> str:
    read = fed.row.case.input
    if fed.mode == "synthetic":
        return ""
    readers = f"{fed.row.case.readers} reader{'s' if fed.row.case.readers != 1 else ''}"
    return ", ".join([readers, read.format, f"page cache {read.page_cache}", f"{read.augment} crop"])


def _modes(report: Report, found: Sequence[Group]) -> list[Rows]:
    """Return a chart for each network and place in which several modes were measured, all frameworks in it."""
    several = [fed for group in found if len(group.modes) > 1 for fed in group.cases]
    charts = []
    for members in grouped(several, lambda fed: _place(fed.row.case)).values():
        kept, warning = beside_others([fed.row for fed in members])
        shown = kept_whole(members, kept, lambda fed: [fed.row])
        if shown:
            cases = [_unfed(fed.row.case) for fed in shown]
            names = [
                Name(name.title, " · ".join(filter(None, [name.detail, mode])))
                for name, mode in zip(labels(cases), _described(shown), strict=True)
            ]
            sets = sorted({fed.row.case.data_name for fed in shown} - {"synthetic"})
            setting = f"{titles(cases[:1])[0]} · {listed(sets) if sets else 'synthetic'}"
            title, _ = headline([group for group in found if group.cases[0] in shown])
            bars = [
                (name, fed.row, fed.row.rate, SHADES[fed.mode])
                for name, fed in zip(names, shown, strict=True)
                if fed.row.rate
            ]
            charts.append(report.bars(title, setting, bars, key=KEY, warning=warning))
    return charts


def _place(case: Case) -> tuple[object, ...]:
    place = case.placement
    return (
        case.workload,
        case.graph_digest,
        case.batch,
        case.precision,
        case.tuning,
        case.optimiser,
        place.device,
        place.nodes,
        place.device_count,
        place.threads,
    )


def _on_fewest_devices(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of each network and data set on the fewest devices that were measured with them."""
    every = list(rows)
    counts = grouped(every, _network_and_data)
    fewest = {key: min(row.case.placement.device_count for row in members) for key, members in counts.items()}
    return [row for row in every if row.case.placement.device_count == fewest[_network_and_data(row)]]


def _network_and_data(row: Row) -> tuple[str, str]:
    return row.case.workload, row.case.data


def _readers(report: Report, members: Sequence[Row]) -> Rows | None:
    """Return the speeds of readers alone; None where they are all of one kind."""
    kept, warning = beside_others(list(members))
    if len({(row.case.adapter, row.case.readers, str(row.case.input)) for row in kept}) < 2:
        return None
    cases = [row.case for row in kept]
    bars = [
        (name, row, row.reader.interval, SHADES[row.case.input.mode])
        for name, row in zip(labels(cases), kept, strict=True)
        if row.reader
    ]
    title = f"{max(bars, key=lambda each: each[2].value)[0].words} reads fastest"
    setting = f"{cases[0].workload} · {cases[0].data_name} · readers alone"
    return report.bars(title, setting, bars, key=KEY, warning=warning)
