"""`stagebench show RUN --roofline`: the bound of each layer, and the best possible speed."""

from typing import Any

from suite.analysis.roofline import Roof, Roofline, of_row
from suite.analysis.rows import Row
from suite.analysis.summary import summarise
from suite.cli.output import say, show_json, show_rows
from suite.errors import RequestError
from suite.results.run_folder import RunFolder
from suite.text import counted, significant

UNDER_QUOTA = ". A control group limits the cores' time: the peaks, measured in a moment, are higher than what lasts"
COLUMNS = ("layer", "kind", "Mflop", "MB", "flop/byte", "bound by", "best ms", "measured ms", "of best")


def show_rooflines(folder: RunFolder, json: bool) -> None:
    """Print a table for each case with a measured peak; RequestError if there is none."""
    rooflines = [(row, roofline) for row in summarise(folder) if (roofline := of_row(folder.path, row))]
    if not rooflines:
        raise RequestError(
            f"{folder.path} has no case with a measured peak and a network that is installed here; measure one with "
            "the pass native: a case's first process ends with its machine's peak"
        )
    if json:
        show_json([_json(row, roofline) for row, roofline in rooflines])
        return
    for row, roofline in rooflines:
        show_rows([_cells(roof) for roof in roofline.rows], COLUMNS, row.case.label)
        say(f"  {_words(row, roofline)}")


def _words(row: Row, roofline: Roofline) -> str:
    bound = [roof.layer for roof in roofline.rows if roof.bound_by == "memory"]
    measured = row.rate_per_device
    arithmetic, memory = (significant(value / 1e9) for value in (roofline.peak.flop_per_s, roofline.peak.bytes_per_s))
    speed = f"; measured {significant(measured.value)}, {measured.value / roofline.best_rate:.0%}" if measured else ""
    return (
        f"at best {significant(roofline.best_rate)} samples/s on each device, at {arithmetic} Gflop/s and {memory} GB/s"
        f"{speed}. Memory bounds "
        f"{counted(len(bound), 'row')} of {len(roofline.rows)}, {roofline.memory_share:.0%} of that time"
        f"{UNDER_QUOTA if 'CPU quota' in row.marks else ''}"
    )


def _json(row: Row, roofline: Roofline) -> dict[str, Any]:
    return {
        "id": row.id,
        "label": row.case.label,
        "peak_per_device": vars(roofline.peak),
        "best_samples_per_second_per_device": roofline.best_rate,
        "best_seconds": roofline.best_s,
        "memory_share": roofline.memory_share,
        "layers": [{**vars(roof), "intensity": roof.intensity, "share": roof.share} for roof in roofline.rows],
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
