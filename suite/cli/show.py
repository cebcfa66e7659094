"""`stagebench show`: the results of a run. Heavy imports wait until the command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.output import say, show_json, show_rows
from stagebench.suite.errors import RequestError
from stagebench.suite.text import counted, significant

if TYPE_CHECKING:
    from stagebench.suite.analysis.roofline import Roof, Roofline
    from stagebench.suite.analysis.rows import Row
    from stagebench.suite.results.run_folder import RunFolder

UNDER_QUOTA = ". A control group limits the cores' time: the peaks, measured in a moment, are higher than what lasts"
BOUND = ("layer", "kind", "Mflop", "MB", "flop/byte", "bound by", "best ms", "measured ms", "of best")


def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON, with all that a report knows.")] = False,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="What bounds each layer, and the best speed that the machine allows.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Every case with all its figures.")] = False,
) -> None:
    """Print who leads, as at the end of a run; of an unfinished run, the results so far."""
    from stagebench.suite.analysis.summary import summarise
    from stagebench.suite.cli.results import print_results
    from stagebench.suite.results.run_folder import RunFolder

    folder = RunFolder.open(run, None)
    if folder.about.of_comm:
        if roofline:
            raise RequestError(
                f"{run} measured communication, and no network, so it has no roofline; leave --roofline out"
            )
        _communication(folder, json)
    elif roofline:
        _show_rooflines(folder, json)
    elif json:
        show_json([row.to_dict() for row in summarise(folder)], homes=False)
    else:
        print_results(folder, full)


def _communication(folder: "RunFolder", json: bool) -> None:
    from stagebench.suite.analysis.comparability import FOREIGN
    from stagebench.suite.analysis.links import links
    from stagebench.suite.cli.comm_tables import show_points, show_summary

    measured = list(links(folder))
    if json:
        show_json([link.to_dict() for link in measured], homes=False)
        return
    for link in measured:
        if link.outcome == FOREIGN:  # not measured on this screen
            show_points(link, ("size", "µs", "MB/s", "bus MB/s", "samples"), f"{link.case.label}, {link.reason}")
    show_summary(measured)


def _show_rooflines(folder: "RunFolder", json: bool) -> None:
    """Print a table for each case with a measured peak; RequestError if there is none."""
    from stagebench.suite.analysis.roofline import of_row
    from stagebench.suite.analysis.summary import summarise

    rooflines = [(row, roofline) for row in summarise(folder) if (roofline := of_row(folder.path, row))]
    if not rooflines:
        raise RequestError(
            f"{folder.path} has no case with a measured peak and a network that is installed here; measure one with "
            "the pass native: a case's first process ends with its machine's peak"
        )
    if json:
        show_json(
            [
                {
                    "id": row.id,
                    "label": row.case.label,
                    "peak_per_device": vars(roofline.peak),
                    "best_samples_per_second_per_device": roofline.best_rate,
                    "best_seconds": roofline.best_s,
                    "memory_share": roofline.memory_share,
                    "layers": [
                        {**vars(roof), "intensity": roof.intensity, "share": roof.share} for roof in roofline.rows
                    ],
                }
                for row, roofline in rooflines
            ]
        )
        return
    for row, roofline in rooflines:
        show_rows([_bounds(roof) for roof in roofline.rows], BOUND, row.case.label)
        say(f"  {_bound(row, roofline)}")


def _bound(row: "Row", roofline: "Roofline") -> str:
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


def _bounds(roof: "Roof") -> dict[str, Any]:
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
