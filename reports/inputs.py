"""What reading costs: synthetic, memory and disk side by side, readers alone, and the bottleneck in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reports.bars import bars
from reports.figure import Chart
from reports.names import common, differences, names
from reports.panels import Panel, beside_others, kept_whole
from reports.shown import Shown, shown
from reports.text import number, share
from suite.analysis.inputs import Fed, Group, groups
from suite.analysis.rows import Row
from suite.contracts.case import Case
from suite.text import grouped
from suite.worker.case_parts import Input

MODE_COLOURS = {"synthetic": "#9AA0A6", "memory": "#56B4E9", "disk": "#0072B2"}


@dataclass(frozen=True)
class Inputs:
    """All that a run tells about its input."""

    groups: list[tuple[str, Group, list[str]]]  # (title, cases equal but for their input, a name for each)
    modes: list[Chart]
    read: Shown  # by readers alone, on the fewest devices that were measured with their data
    readers: list[Chart]


def inputs_of(rows: list[Row]) -> Inputs | None:
    """None when no two cases differ in their input alone, and no readers can be compared."""
    found, read = groups(rows), shown(_on_fewest_devices(row for row in rows if row.reader))
    readers = _readers(read.rows)
    if not found and not readers:
        return None
    titles = names([_unfed(group.cases[0].row.case) for group in found])
    named = [
        (f"{group.cases[0].row.case.workload}: {title}", group, _described(group.cases))
        for title, group in zip(titles, found, strict=True)
    ]
    return Inputs(named, _modes(found), read, readers)


def words(fed: Fed) -> str:
    """The bottleneck in a sentence."""
    found, waits = fed.bottleneck, _waits(fed)
    if found is None:
        return "nothing is read" if fed.mode == "synthetic" else ""
    if fed.delivers is None:
        return (
            f"{waits}: "
            + {
                "reader": "reading holds the network up",
                "network": "the network is the bottleneck",
                "open": "whether reading holds the network up is not determined",
            }[found]
        )
    rates = f"the reader delivers {number(fed.delivers)} samples/s, the network takes {number(fed.takes)}"
    return {
        "reader": f"{rates}: the reader is the bottleneck",
        "network": f"{rates}: the network is the bottleneck",
        "neither": f"{rates}: no detectable difference",
        "cores": f"alone {rates}, yet {waits}: beside the network the reader has fewer cores",
        "open": f"alone {rates}, and {waits}: what holds it up is not determined",
    }[found]


def _waits(fed: Fed) -> str:
    added, within = fed.row.waited_share or 0.0, fed.row.waited_interval
    if within and within.low <= 0.0 < within.high and fed.waits is None:
        return "how much of an iteration is waiting is not determined"
    return f"{share(added)} of an iteration is waiting" if added > 0 else "reading adds nothing to an iteration"


def _unfed(case: Case) -> Case:
    return replace(case, data="", passes=(), input=Input(), readers=1)


def _described(several: Sequence[Fed]) -> list[str]:
    """Each one's mode, and how its reading differs from that of the others of the same mode."""
    found = []
    for fed in several:
        alike = [replace(other.row.case, adapter="", strategy="") for other in several if other.mode == fed.mode]
        fed_as = [Case("", "", "", data=case.data, input=case.input, readers=case.readers) for case in alike]
        own = replace(fed_as[0], data=fed.row.case.data, input=fed.row.case.input, readers=fed.row.case.readers)
        differing = differences([own, *fed_as])[0]
        found.append(" · ".join([fed.mode, *(word for word in differing if not word.startswith("from "))]))
    return found


def reading(fed: Fed) -> str:
    """How it was read, in words; nothing of synthetic data."""
    read = fed.row.case.input
    if fed.mode == "synthetic":
        return ""
    readers = f"{fed.row.case.readers} reader{'s' if fed.row.case.readers != 1 else ''}"
    return ", ".join([readers, read.format, f"page cache {read.page_cache}", f"{read.augment} crop"])


def _modes(found: list[Group]) -> list[Chart]:
    """A chart for each network and place in which several modes were measured, all adapters in it."""
    charts: dict[tuple[object, ...], list[Fed]] = {}
    for group in (group for group in found if len(group.modes) > 1):
        charts.setdefault(_place(group.cases[0].row.case), []).extend(group.cases)
    drawn = [_mode_chart(members) for members in charts.values()]
    return [chart for chart in drawn if chart]


def _place(case: Case) -> tuple[object, ...]:
    place = case.placement
    return (
        *(case.workload, case.graph_digest, case.batch, case.precision, case.tuning, case.optimiser),
        *(place.device, place.nodes, place.device_count, place.threads),
    )


def _mode_chart(members: list[Fed]) -> Chart | None:
    kept, warning = beside_others([fed.row for fed in members])
    shown = kept_whole(members, kept, lambda fed: [fed.row])
    if not shown:
        return None
    cases = [fed.row.case for fed in shown]
    sets = sorted({case.data_name for case in cases} - {"synthetic"})
    panel = Panel(
        f"{cases[0].workload} on {' and '.join(sets) or 'synthetic data'}",
        [fed.row for fed in shown],
        [
            f"{name} · {mode}"
            for name, mode in zip(names([_unfed(case) for case in cases]), _described(shown), strict=True)
        ],
        common(cases),
        warning,
    )
    rates = [fed.row.rate for fed in shown if fed.row.rate]
    return panel, bars(panel, rates, [MODE_COLOURS[fed.mode] for fed in shown], "samples/s, all devices together")


def _on_fewest_devices(rows: Iterable[Row]) -> list[Row]:
    """Of each network and data set the rows on the fewest devices that were measured with them."""
    every = list(rows)
    counts = grouped(every, _network_and_data)
    fewest = {key: min(row.case.placement.device_count for row in members) for key, members in counts.items()}
    return [row for row in every if row.case.placement.device_count == fewest[_network_and_data(row)]]


def _network_and_data(row: Row) -> tuple[str, str]:
    return row.case.workload, row.case.data


def _readers(rows: Iterable[Row]) -> list[Chart]:
    """Readers alone: a chart for each network and data set that has several."""
    drawn = [_reader_chart(members) for members in grouped(rows, _network_and_data).values()]
    return [chart for chart in drawn if chart]


def _reader_chart(members: list[Row]) -> Chart | None:
    kept, warning = beside_others(members)
    if len({(row.case.adapter, row.case.readers, str(row.case.input)) for row in kept}) < 2:
        return None
    cases = [row.case for row in kept]
    panel = Panel(f"{cases[0].workload} on {cases[0].data_name}", kept, names(cases), common(cases), warning)
    rates = [row.reader.interval for row in kept if row.reader]
    shades = [MODE_COLOURS[case.input.mode] for case in cases]
    return panel, bars(panel, rates, shades, "samples/s, readers alone")
