"""The page of a run of `stagebench comm`: links over size, their fits, gradient tensors, and what can be hidden."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stagebench.reports.charts.html import Cells, folded, note, table, tag
from stagebench.reports.charts.lines import Line, Lines
from stagebench.reports.pages.evidence import host_words, noise_words
from stagebench.reports.pages.run import Section
from stagebench.suite.analysis.comparability import FOREIGN, meaning
from stagebench.suite.analysis.links import LEAST, SIMULATED, Fit, Link, Point, by_mark, links, written
from stagebench.suite.analysis.wording import milliseconds, moment, number, share
from stagebench.suite.errors import once_per_reason
from stagebench.suite.results.foreign import imported as read
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.text import grouped

CURVE = 40  # points of a fitted line
NONE = ["not determined", "–"]
TICKS = tuple(4**power for power in range(1, 17))
WHOLE = {"single": "one flat buffer", "row": "all in a row", "together": "all begun, then waited for"}


class LinkPanel(NamedTuple):
    """A link: a backend on a placement."""

    title: str
    note: str
    links: list[Link]


class Gradients(NamedTuple):
    """A network's tensors on one link."""

    link: Link
    tensors: list[tuple[str, Point | None]]  # in backward order; None: its size was not reached
    whole: list[tuple[str, Point]]  # all tensors exchanged: one after the other, together, flat

    @property
    def alone(self) -> float | None:
        """Seconds of all tensors, each measured alone, added up."""
        found = [point.seconds for _, point in self.tensors if point and point.seconds]
        return sum(found) if len(found) == len(self.tensors) else None


def comm_sections(folder: RunFolder) -> list[Section]:
    """Return the sections of the page; the first one's title is the page's."""
    found, imported = list(links(folder)), folder.about.imported
    measured = [link for link in found if link.singles]
    panels = panels_of([link for link in measured if not link.network])
    noise = noise_words([(link.case.label, link.noise) for link in found if link.noise and link.outcome == "ok"])
    failed = once_per_reason(link.refused for link in found if link.outcome not in ("ok", FOREIGN))
    lines = [[one.label, tag("span.bad", one.outcome), one.reason] for one in failed]
    whole = table("Outcomes", "Case | outcome | reason<", lines)
    parts = [
        _links(panels, imported),
        _fits(panels),
        _gradients([gradients(link) for link in measured if link.network]),
        _overlap(found),
        Section("outcomes", "Outcomes", whole) if lines else None,
        Section("noise", "How noisy it was", tag("p", " ".join(noise))) if noise else None,
        Section("method", "Method", [tag("p", words) for words in _method(found, imported)]),
        _machine(folder, measured, imported),
    ]
    return [part for part in parts if part]


def title_of(folder: RunFolder) -> str:
    """Return the run's name in lists."""
    if folder.about.imported:
        return f"Imported: {', '.join(read(folder).programs)}"
    return "Communication by itself"


def headline(panels: Sequence[LinkPanel], imported: bool) -> str:
    """Return the backend with the highest bus bandwidth, and its figure."""
    known = [
        (point.bus_bandwidth, panel.title, point)
        for panel in panels
        for link in panel.links
        for point in link.singles
        if point.bus_bandwidth
    ]
    if not known:
        return "No operation has been measured"
    rate, title, point = max(known, key=lambda each: each[0])
    if len(panels) == 1 or imported:
        return f"{title} reaches {number(rate, 1e-6)} MB/s: {point.operation} of {written(point.bytes)}"
    return f"{title} reaches most: {number(rate, 1e-6)} MB/s"


def _links(panels: Sequence[LinkPanel], imported: bool) -> Section:
    own = not imported
    heads = "Operation | message | µs!" + " | 5 % | 95 %" * own + " | MB/s | bus MB/s" + " | late" * own + " | samples"
    body: Cells = []
    for panel in panels:
        lines = []
        for link in panel.links:
            for point in link.singles:
                late = number(point.late if point.clock_error is not None else None)
                cells = [f"{point.operation}{link.marked}", written(point.bytes), number(point.seconds, 1e6)]
                cells += [number(point.low, 1e6), number(point.high, 1e6)] * own
                cells += [number(point.algorithm_bandwidth, 1e-6), number(point.bus_bandwidth, 1e-6)]
                lines.append([*cells, *[late] * own, str(point.samples)])
        charts = [times(panel).html(), bandwidths(panel).html()]
        body += [tag("h3", panel.title), note(panel.note), tag("div.panels", charts)]
        body.append(folded("Every size", table(panel.title, heads, lines)))
    also = "Medians of the slowest rank’s times; bars: 5 … 95 %. Thin: latency + size ÷ bandwidth, fitted."
    if imported:
        also = "What other programs measured: foreign and unverified; only the means of their samples are known."
    return Section("links", headline(panels, imported), body, also)


def times(panel: LinkPanel) -> Lines:
    """Return microseconds over size: medians with the 5th and 95th percentile, and the fit where it is determined."""
    return _chart(
        panel,
        "µs",
        lambda point: [seconds * 1e6 for seconds in (point.seconds, point.low, point.high) if seconds is not None],
        lambda fit, point, size: fit.seconds(size) * 1e6,
    )


def bandwidths(panel: LinkPanel) -> Lines:
    """Return bus bandwidth in MB/s over size, and the fit's."""
    return _chart(
        panel,
        "bus MB/s",
        lambda point: [point.bus_bandwidth / 1e6] if point.bus_bandwidth is not None else [],
        lambda fit, point, size: size * point.factor / fit.seconds(size) / 1e6,
    )


def _chart(
    panel: LinkPanel, up: str, values: Callable[[Point], Sequence[float]], model: Callable[[Fit, Point, float], float]
) -> Lines:
    """`values` gives a point's figure, alone or with its lower and upper end; nothing if the point has no figure."""
    lines = []
    for link in panel.links:
        there = [(point.bytes, each) for point in link.singles if (each := values(point))]
        ends = all(len(each) > 2 for _, each in there)
        low, high = ([each[at] for _, each in there] if ends else () for at in (1, 2))
        name = f"{link.collective.operation}{link.marked}"
        lines.append(Line(name, [size for size, _ in there], [each[0] for _, each in there], low, high, dots=True))
        if link.fit and link.fit.tells:
            sizes = np.geomspace(link.singles[0].bytes, link.singles[-1].bytes, CURVE).tolist()
            lines.append(Line("", sizes, [model(link.fit, link.singles[0], size) for size in sizes], kind="ideal"))
    every = sorted({point.bytes for link in panel.links for point in link.singles})
    ticks = [tick for tick in TICKS if every[0] <= tick <= every[-1]][::3] or every[:1]
    title = "Time by size of the message" if up == "µs" else "Bus bandwidth by size of the message"
    called = {float(tick): written(tick) for tick in ticks}
    return Lines(title, f"{panel.title} · {up}", lines, "message", up, "xy", ticks=called)


def _fits(panels: Sequence[LinkPanel]) -> Section | None:
    heads = "Link | operation< | α, µs! | ± | 1/β, MB/s! | ± | bus MB/s | error of the fit | worst size"
    lines = []
    for panel, link in ((one, link) for one in panels for link in one.links):
        if fit := link.fit:
            cells = [panel.title, f"{link.collective.operation}{link.marked}"]
            alpha = [number(fit.alpha, 1e6), number(fit.alpha_error, 1e6)]
            beta = [number(1e-6 / fit.beta), share(fit.beta_error / fit.beta)] if fit.tells_bandwidth else NONE
            limit = number(link.bus_limit or None, 1e-6)
            cells += [*(alpha if fit.tells_latency else NONE), *beta, limit]
            lines.append([*cells, share(fit.error), share(fit.worst)])
    words = note(
        "t(s) = α + β·s, fitted by least relative errors, so that small and large messages count alike. ± are "
        "standard errors. Where the error of the fit is large, the library probably changes its algorithm with the "
        "size, and the table of every size is what to trust. A parameter whose standard error exceeds 30 % of it is "
        "not determined; where the error of the fit does, neither is."
    )
    return Section("fits", "Latency and bandwidth", [table("Fits", heads, lines), words]) if lines else None


def _gradients(found: Sequence[Gradients]) -> Section | None:
    if not found:
        return None
    heads = "Network and link | tensors | MB | how< | ms! | 5 % | 95 % | bus MB/s"
    lines, every = [], []
    for each in found:
        name = f"{each.link.network}, {each.link.collective.backend}{each.link.marked}"
        if each.alone is not None and each.tensors:
            added = [name, str(len(each.tensors)), "", "each by itself, added up", milliseconds(each.alone)]
            lines.append([*added, "", "", ""])
        for how, point in each.whole:
            times = map(milliseconds, (point.seconds, point.low, point.high))
            cells = [name, str(point.messages), number(point.bytes / 1e6), how, *times]
            lines.append([*cells, number(point.bus_bandwidth, 1e-6)])
        if each.tensors:
            tensors = []
            for tensor, at in each.tensors:
                values = (at.bytes, at.seconds, at.bus_bandwidth) if at else (None,) * 3
                tensors.append([tensor, *map(number, values, (1.0, 1e6, 1e-6))])
            title = f"Every tensor of {each.link.network} over {each.link.collective.backend}"
            every.append(folded(title, table(title, "Tensor | bytes | µs | bus MB/s", tensors)))
    words = note(
        "In the order in which the backward pass completes them, summed over all ranks. "
        "Tensors of one size are measured once."
    )
    whole = table("Gradient tensors", heads, lines)
    return Section("gradients", "Gradient tensors", [whole, words, every])


def _overlap(found: Sequence[Link]) -> Section | None:
    heads = "Link | message | communication, ms | computation, ms | both, ms | hidden!"
    heads += " | both with progress calls, ms | hidden!"
    lines = []
    for link in found:
        for each in link.overlaps:
            hidden = each.hidden, each.hidden_with_progress
            plain, progressed = ("not determined" if part is None else share(part) for part in hidden)
            name = f"{link.collective.backend}, {link.case.placement.words}{link.marked}"
            times = map(milliseconds, (each.comm, each.comp, each.both))
            lines.append([name, written(each.bytes), *times, plain, milliseconds(each.progressed), progressed])
    words = note(
        "A non-blocking all-reduce during a computation that takes about as long. Hidden = (communication + "
        "computation − both) ÷ the shorter one: 100 % when the shorter one costs nothing, 0 % when one runs after the "
        "other. In the last two columns the computation calls the library now and then, so that it can make progress."
    )
    return Section("overlap", "Overlap", [table("Overlap", heads, lines), words]) if lines else None


def _method(found: Sequence[Link], imported: bool) -> list[str]:
    if imported:
        return [
            "stagebench measured none of this and can verify none of it. Bus bandwidth is computed from the printed "
            "times as nccl-tests does: what identical ranks ask of each one’s wire. MB are 10⁶ bytes."
        ]
    error = max((point.clock_error or 0.0 for link in found for point in link.points), default=0.0)
    within = f" (here to within {number(error * 1e6)} µs)" if error else ""
    first = (
        f"All ranks begin a sample at the same time, fixed beforehand on a common clock{within}; the sample ends when "
        "the last rank has its result. A sample that a rank began late is discarded and counted. A message with fewer "
        f"than {LEAST} samples in time has no figure. Point-to-point needs no schedule: a message takes half of a "
        "round trip between rank 0 and the last rank. The first tenth of the time is warm-up, and dropped. Every "
        "other sample is kept in the records. Sizes, algorithm bandwidth and bus bandwidth are those of nccl-tests; "
        "where servers sum (kvstore), it follows the same formula and is no wire’s speed. MB are 10⁶ bytes."
    )
    second = (
        "Before and after the samples, every rank checks its results against numbers whose sums are exact, "
        "non-blocking operations as they were begun. A wrong result ends the case as a crash that names the place."
    )
    return [first, second]


def _machine(folder: RunFolder, measured: Sequence[Link], imported: bool) -> Section:
    cards = [tag("div", tag("h3", f"Host {name}"), host_words(host)) for name, host in folder.hosts().items()]
    if not imported:
        used = {}
        for link in measured:
            settings = ", ".join(f"{name}={value}" for name, value in link.settings.items())
            words = f"{link.collective.backend}: {link.transport}{settings and f' (with {settings})'}"
            used[words] = tag("p", words)
        cards.append(tag("div", tag("h3", "Transports"), list(used.values()) or tag("p", "Nothing was measured.")))
    about = folder.about
    begun = f"{'Imported' if imported else 'Begun'} {moment(about.created)}, stagebench "
    begun += about.stagebench or "of unknown version"
    cards.append(tag("div", tag("h3", "Command"), tag("code", " ".join(about.command)), tag("p", begun)))
    return Section("machine", "Import" if imported else "Machine and run", tag("div.columns", cards))


def unmeasured(group: Sequence[Link]) -> list[str]:
    """Return the sizes beyond the budget and those whose samples began late, a line each for every operation."""
    skipped = [
        f"{one.operation}: {', '.join(map(written, link.skipped))} skipped, beyond {one.budget:g} s"
        for link in group
        if (one := link.collective) and link.skipped
    ]
    late = [
        f"{link.collective.operation}: no figure for {', '.join(written(point.bytes) for point in points)}, "
        f"since fewer than {LEAST} samples began in time"
        for link in group
        if (points := link.without_figure)
    ]
    return skipped + late


def _note(group: Sequence[Link]) -> str:
    first = group[0]
    # Of an imported link, where it was printed; of ours, how its messages went, and what started its ranks.
    source = [first.transport, first.case.placement.launcher]
    if first.outcome == FOREIGN:
        source = list(dict.fromkeys(link.reason for link in group))
    marks = [
        f"{mark}: {', '.join(link.collective.operation for link in several)} ({meaning(mark)})"
        for mark, several in by_mark(group).items()
    ]
    words = [*source, ", ".join(first.hosts), *unmeasured(group), *marks]
    return " · ".join([*words, *[SIMULATED] * first.simulated])


def panels_of(found: Sequence[Link]) -> list[LinkPanel]:
    """Return one panel for every backend and placement, in the order asked for."""
    groups = grouped(found, lambda link: (link.collective.backend, link.case.placement, link.collective.of_dtype))
    return [
        LinkPanel(f"{backend}{dtype}, {placement.words}", _note(group), group)
        for (backend, placement, dtype), group in groups.items()
    ]


def gradients(link: Link) -> Gradients:
    """Return the network's tensors with the point of each one's size."""
    by_size, sizes = {point.bytes: point for point in link.singles}, link.collective.sizes
    whole = [point for point in link.points if point.kind != "single" or point.bytes == sum(sizes)]
    tensors = [(name, by_size.get(size)) for name, size in zip(link.collective.tensors, sizes, strict=True)]
    return Gradients(link, tensors, [(WHOLE[point.kind], point) for point in whole])
