"""The page of a run of `stagebench comm`: a pair of charts a link, the fits, gradient tensors, what can be hidden."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.comm_charts import bandwidths, times
from reports.facts import noise_words
from reports.figure import Figure
from reports.frame import Frame, made, rendered, write_assets
from suite.analysis.comparability import FOREIGN, meaning
from suite.analysis.links import LEAST, SIMULATED, Link, Point, by_mark, links, written
from suite.errors import once_per_reason
from suite.files import write_whole
from suite.results.foreign import imported
from suite.results.run_folder import RunFolder
from suite.text import grouped

PAGE = "index.html"


@dataclass(frozen=True)
class Panel:
    """One link: a backend on a placement."""

    title: str
    note: str
    links: list[Link]
    charts: list[Figure]


@dataclass(frozen=True)
class Gradients:
    """A network's tensors on one link."""

    link: Link
    tensors: list[tuple[str, Point | None]]  # in backward order; None: its size was not reached
    whole: list[tuple[str, Point]]  # all tensors exchanged: one after the other, together, flat

    @property
    def alone(self) -> float | None:
        """Seconds of all tensors, each measured by itself, added up."""
        found = [point.seconds for _, point in self.tensors if point and point.seconds]
        return sum(found) if len(found) == len(self.tensors) else None


def write(folder: RunFolder, directory: Path) -> Path:
    """Write `directory`/index.html and what it needs; StoreError as for a site."""
    write_assets(made(directory))
    put(folder, directory)
    return directory / PAGE


def put(folder: RunFolder, directory: Path, root: str = "", home: str = "") -> dict[str, Any]:
    """The same without what pages share, which `root` leads to (see Frame). Returns what the page was made of."""
    found = context(folder)
    frame = Frame(found["title"], root=root, home=home)
    write_whole(made(directory) / PAGE, frame.page(_body(found), found["title"]))
    return found


def write_single(folder: RunFolder, directory: Path) -> Path:
    """Write the same as one file that is complete in itself."""
    page = made(directory) / PAGE
    write_whole(page, render(folder))
    return page


def render(folder: RunFolder) -> str:
    """The single page as text."""
    found = context(folder)
    return Frame(found["title"]).single(_body(found), found["title"])


def _body(found: dict[str, Any]) -> str:
    return rendered(["comm"], found)["comm"]


def settings_of(link: Link) -> str:
    """The library's settings in words; "" where nobody set any."""
    return ", ".join(f"{name}={value}" for name, value in link.settings.items())


def context(folder: RunFolder) -> dict[str, Any]:
    """Every name that the template knows."""
    found = list(links(folder))
    measured = [link for link in found if link.singles]
    return {
        "title": _title(folder),
        "about": folder.about,
        "imported": folder.about.imported,
        "hosts": folder.hosts(),
        "links": found,
        "transports": list(
            dict.fromkeys((link.collective.backend, link.transport, settings_of(link)) for link in measured)
        ),
        "panels": panels([link for link in measured if not link.network]),
        "gradients": [gradients(link) for link in measured if link.network],
        "overlaps": [link for link in found if link.overlaps],
        "failed": once_per_reason(link.refused for link in found if link.outcome not in ("ok", FOREIGN)),
        "noise": noise_words([(link.case.label, link.noise) for link in found if link.noise and link.outcome == "ok"]),
        "size": written,
        "clock_error": max((point.clock_error or 0.0 for link in found for point in link.points), default=0.0),
    }


def _title(folder: RunFolder) -> str:
    if folder.about.imported:
        return f"Imported: {', '.join(imported(folder).programs)}"
    return "Communication by itself"


def unmeasured(group: Sequence[Link]) -> list[str]:
    """The sizes beyond the budget and those whose samples began late, a line each for every operation."""
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


def marked(group: Sequence[Link]) -> list[str]:
    """What a reader must know of some operations, a line for each mark."""
    return [
        f"{mark}: {', '.join(link.collective.operation for link in several)} ({meaning(mark)})"
        for mark, several in by_mark(group).items()
    ]


def _note(group: Sequence[Link]) -> str:
    first = group[0]
    simulated = [SIMULATED] if first.simulated else []
    # Of an imported link, where it was printed; of ours, by what its messages went, and what started its ranks.
    foreign = list(dict.fromkeys(link.reason for link in group))
    way = foreign if first.outcome == FOREIGN else [first.transport, first.case.placement.launcher]
    return " · ".join([*way, ", ".join(first.hosts), *unmeasured(group), *marked(group), *simulated])


def panels(found: Sequence[Link]) -> list[Panel]:
    """One for every backend and placement, in the order asked for."""
    groups = grouped(found, lambda link: (link.collective.backend, link.case.placement, link.collective.of_dtype))
    return [
        Panel(
            f"{backend}{dtype}, {placement.words}",
            _note(group),
            group,
            [times(group), bandwidths(group)],
        )
        for (backend, placement, dtype), group in groups.items()
    ]


def gradients(link: Link) -> Gradients:
    """The network's tensors with the point of each one's size."""
    names = {"single": "one flat buffer", "row": "all in a row", "together": "all begun, then waited for"}
    by_size, sizes = {point.bytes: point for point in link.singles}, link.collective.sizes
    whole = [point for point in link.points if point.kind != "single" or point.bytes == sum(sizes)]
    return Gradients(
        link,
        [(name, by_size.get(size)) for name, size in zip(link.collective.tensors, sizes, strict=True)],
        [(names[point.kind], point) for point in whole],
    )
