"""`stagebench show RUN --roofline`: what bounds each layer, and the best speed there could be."""

from typing import Any

from suite.analysis.roofline import Roof, Roofline, of_row
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.cli import formatting, tables
from suite.cli.formatting import significant
from suite.cli.say import say
from suite.errors import RequestError
from suite.results.run_folder import RunFolder

UNDER_QUOTA = ". A control group limits the cores' time: the peaks, measured in a moment, are higher than what lasts"
COLUMNS = ("layer", "kind", "Mflop", "MB", "flop/byte", "bound by", "best ms", "measured ms", "of best")


def show_rooflines(folder: RunFolder, json: bool) -> None:
    """A table a case that has a measured peak; RequestError where none has."""
    found = [(row, one) for row in summarise(folder) if (one := of_row(folder.path, row))]
    if not found:
        raise RequestError(
            f"{folder.path} has no case with a measured peak and a network that is installed here; measure one with "
            "the pass native: a case's first process ends with its machine's peak"
        )
    if json:
        tables.show_json([_json(row, one) for row, one in found])
        return
    for row, one in found:
        tables.show([_cells(roof) for roof in one.rows], COLUMNS, row.case.label)
        say(f"  {_words(row, one)}")


def _words(row: Row, found: Roofline) -> str:
    bound = [roof.layer for roof in found.rows if roof.bound_by == "memory"]
    measured = row.rate_per_device
    arithmetic, memory = (significant(each / 1e9) for each in (found.peak.flop_per_s, found.peak.bytes_per_s))
    speed = f"; measured {significant(measured.value)}, {measured.value / found.best_rate:.0%}" if measured else ""
    return (
        f"at best {significant(found.best_rate)} samples/s on each device, at {arithmetic} Gflop/s and {memory} GB/s"
        f"{speed}. Memory bounds "
        f"{formatting.counted(len(bound), 'row')} of {len(found.rows)}, {found.memory_share:.0%} of that time"
        f"{UNDER_QUOTA if 'CPU quota' in row.marks else ''}"
    )


def _json(row: Row, found: Roofline) -> dict[str, Any]:
    return {
        "id": row.id,
        "label": row.case.label,
        "peak_per_device": vars(found.peak),
        "best_samples_per_second_per_device": found.best_rate,
        "best_seconds": found.best_s,
        "memory_share": found.memory_share,
        "layers": [{**vars(roof), "intensity": roof.intensity, "share": roof.share} for roof in found.rows],
    }


def _cells(roof: Roof) -> dict[str, Any]:
    return {
        "layer": roof.layer,
        "kind": roof.kind,
        "Mflop": significant(roof.operations / 1e6),
        "MB": significant(roof.bytes / 1e6),
        "flop/byte": None if roof.intensity is None else significant(roof.intensity),
        "bound by": roof.bound_by,
        "best ms": significant(1e3 * roof.best_s),
        "measured ms": None if roof.measured_s is None else significant(1e3 * roof.measured_s),
        "of best": None if roof.share is None else f"{roof.share:.0%}",
    }
