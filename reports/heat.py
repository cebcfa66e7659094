"""The heat map of layers: a line a layer, a column a case; the darker, the longer."""

from collections.abc import Iterable
from dataclasses import dataclass

from reports.panels import Panel

SHADE = "#0072B2"  # of Okabe & Ito (2008); only its strength tells, so that no colour vision is asked for
DEEPEST = 55  # per cent of it: the number in front is still read, in both colour schemes


@dataclass(frozen=True)
class Heat:
    """One layer of one case: seconds of forward and backward, and its shade as CSS; the longest of all is deepest."""

    seconds: float
    shade: str


@dataclass(frozen=True)
class HeatMap:
    """One network on one input."""

    panel: Panel
    names: list[str]  # of the cases, a column each
    lines: list[tuple[str, str, list[Heat | None]]]  # layer, kind; None: not timed there


def heat_maps(panels: Iterable[Panel]) -> list[HeatMap]:
    """Of rows that may be compared, where an adapter has timed layers by themselves."""
    return [found for found in map(_heat_map, panels) if found.names]


def _heat_map(panel: Panel) -> HeatMap:
    timed = [(row.layers, name) for row, name in zip(panel.rows, panel.names, strict=True) if row.layers]
    seconds = [{layer.layer: layer.forward_s + layer.backward_s for layer in layers} for layers, _ in timed]
    kinds = {layer.layer: layer.kind for layers, _ in timed for layer in layers}
    most = max((each for column in seconds for each in column.values()), default=0.0) or 1.0
    lines = [
        (layer, kind, [_heat(column[layer], most) if layer in column else None for column in seconds])
        for layer, kind in kinds.items()
    ]
    return HeatMap(panel, [name for _, name in timed], lines)


def _heat(seconds: float, most: float) -> Heat:
    return Heat(seconds, f"color-mix(in srgb, {SHADE} {DEEPEST * seconds / most:.0f}%, var(--page))")
