"""Speeds at a glance: a line an adapter and strategy, a column a place, from one device to many nodes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reports.names import names
from reports.panels import Panel
from suite.analysis.rows import Row
from suite.contracts.case import Case, Placement

Place = tuple[int, int]  # nodes, devices on each


@dataclass(frozen=True)
class Body:
    """One network on one input: (name, the row at each place or None)."""

    panel: Panel
    lines: list[tuple[str, list[Row | None]]]


@dataclass(frozen=True)
class Matrix:
    """All of a run's speeds."""

    places: list[str]
    bodies: list[Body]


def matrix(tables: Iterable[Panel], least: int = 2) -> Matrix | None:
    """None with fewer places than `least`: when everything ran in one place, the table of speeds says it all."""
    panels = list(tables)
    places = sorted({place_of(row.case) for panel in panels for row in panel.rows})
    if len(places) < least:
        return None
    return Matrix([words_of(place) for place in places], [Body(panel, _lines(panel, places)) for panel in panels])


def place_of(case: Case) -> Place:
    """Where it ran; binding and launcher aside."""
    place = case.placement
    return place.nodes, place.devices_per_node


def words_of(place: Place) -> str:
    """1 device, 4 devices, 2 nodes of 4."""
    nodes, devices = place
    if nodes > 1:
        return f"{nodes} nodes of {devices}"
    return f"{devices} device{'s' if devices > 1 else ''}"


def _lines(panel: Panel, places: list[Place]) -> list[tuple[str, list[Row | None]]]:
    """Strategies of several devices begin with the one-device row that they are scaled from."""
    known = {row.id: row for row in panel.rows}
    series: dict[str, dict[Place, Row]] = {}
    for row in panel.rows:
        if row.several_devices:
            cells = series.setdefault(anywhere(row.case).id, {})
            if row.scaling and row.scaling.baseline_id in known:
                cells.setdefault((1, 1), known[row.scaling.baseline_id])
            cells[place_of(row.case)] = max(cells.get(place_of(row.case), row), row, key=lambda row: row.speed)
    there = {row.id for cells in series.values() for row in cells.values()}
    for row in panel.rows:
        if not row.several_devices and row.id not in there:
            series.setdefault(anywhere(row.case).id, {})[1, 1] = row
    called = names([anywhere(max(cells.items())[1].case) for cells in series.values()])
    return [(name, [cells.get(place) for place in places]) for name, cells in zip(called, series.values(), strict=True)]


def anywhere(case: Case) -> Case:
    """The case without its place, rate and passes: what a strategy on one device and on many have in common."""
    place = Placement(device=case.placement.device, threads=case.placement.threads)
    batch = case.batch if case.scaling == "weak" else case.global_batch
    return replace(case, placement=place, batch=batch, lr=0.0, passes=())
