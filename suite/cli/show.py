"""`stagebench show`: the results of a run, as a table. Heavy imports wait until the command runs."""

import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.output import apart, label, say, say_wrapped, show_json, show_rows
from suite.errors import RequestError
from suite.text import counted, significant

if TYPE_CHECKING:
    from suite.analysis.roofline import Roof, Roofline
    from suite.analysis.rows import Row
    from suite.results.run_folder import RunFolder

SPEED = ("samples/s", "verdict", "95 % interval", "per device", "ms/step", "of peak", "J/sample")
COLUMNS = ("case", "outcome", *SPEED, "proof", "marks")
NARROW = ("case", "samples/s", "verdict")  # on a terminal in which the whole table would break
WIDE = 120  # columns of a terminal that has room for the whole table
OPTIONAL = ("verdict", "of peak", "J/sample", "marks")  # shown if a row has one
UNDER_QUOTA = ". A control group limits the cores' time: the peaks, measured in a moment, are higher than what lasts"
BOUND = ("layer", "kind", "Mflop", "MB", "flop/byte", "bound by", "best ms", "measured ms", "of best")


def register(app: typer.Typer) -> None:
    app.command()(show)


def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON, with all that a report knows.")] = False,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="What bounds each layer, and the best speed that the machine allows.")
    ] = False,
) -> None:
    """Print the results of a run again, as at its end; of an unfinished run, the results so far."""
    from suite.analysis.summary import summarise
    from suite.results.run_folder import RunFolder

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
        print_results(folder)


def _communication(folder: "RunFolder", json: bool) -> None:
    from suite.analysis.comparability import FOREIGN
    from suite.analysis.links import links
    from suite.cli.comm_tables import show_points, show_summary

    measured = list(links(folder))
    if json:
        show_json([link.to_dict() for link in measured], homes=False)
        return
    for link in measured:
        if link.outcome == FOREIGN:  # not measured on this screen
            show_points(link, ("size", "µs", "MB/s", "bus MB/s", "samples"), f"{link.case.label}, {link.reason}")
    show_summary(measured)


def print_results(folder: "RunFolder", reasons: bool = True) -> None:
    """Print the table of results; with `reasons`, also why other cases have none, each reason once."""
    from suite.analysis.comparability import FOREIGN
    from suite.analysis.summary import summarise, unused_records
    from suite.errors import once_per_reason

    rows = summarise(folder)
    measured = [row for row in rows if row.processes or row.outcome == FOREIGN]
    if measured:
        narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < WIDE
        cells = [_cells(row, called) for row, called in zip(measured, _names(measured, narrow), strict=True)]
        known = [name for name in COLUMNS if name not in OPTIONAL or any(row.get(name) for row in cells)]
        show_rows(cells, [name for name in known if not narrow or name in NARROW])
    for why in sorted({row.against.verdict for row in measured if row.against and ": " in row.against.verdict}):
        say_wrapped(f"{why}; resume the run, or measure more processes")
    later = sum("another time" in row.marks for row in measured)
    if later:
        those = "1 row was" if later == 1 else f"{later} rows were"
        say_wrapped(f"{those} measured at another time than the others: compared as rows of two runs are, less sharply")
    told = [row for row in rows if reasons and row.outcome != FOREIGN and (row.reason or row.outcome != "ok")]
    for refused in once_per_reason(row.refused for row in told):
        say_wrapped(f"{refused.outcome}: {refused.label}{': ' if refused.reason else ''}{refused.reason}")
    if measured:
        _say_power(measured, folder.about.until)
    if note := unused_records(folder):
        say_wrapped(note)


def _say_power(rows: "list[Row]", until: float | None) -> None:
    """Say how many processes a comparison with another run needs, if a case has fewer; `until` is the run's rule."""
    from suite.analysis.compare_runs import SMALL, processes_needed, processes_noise

    change = until if until and until > 0 else SMALL
    noises = [(row, processes_noise(row.rates)) for row in rows if row.rates and row.sound]
    needed = [(row, processes_needed(noise, change)) for row, noise in noises if noise]
    few = [(row, count) for row, count in needed if count is None or count > len(row.measured)]
    if few:
        row, most = max(few, key=lambda row_count: row_count[1] or math.inf)
        cases = "1 case" if len(few) == 1 else f"{len(few)} cases"
        many = f"{most} processes" if most else "more processes than is practical"
        seen = f"to see a change of {100 * change:g}% in another run"
        say_wrapped(f"{cases}: too few processes {seen}; {row.case.label} needs {many}")


def _names(rows: "list[Row]", short: bool) -> list[str]:
    more = apart(row.case for row in rows)
    return [label(row.case, 0 if short else sys.maxsize, more[row.case.id]) for row in rows]


def _verdict(row: "Row") -> str:
    """Return a row's place: the lead or the distance to it, or why it is not compared."""
    from suite.analysis.comparability import DISQUALIFYING

    if row.outcome != "ok":
        return row.outcome
    if row.against is None:
        return ", ".join(mark for mark in row.marks if mark in DISQUALIFYING)
    verdict = row.against.verdict.partition(":")[0]
    return f"{verdict}, {row.against.ratio.value:.0%} of the leader" if verdict == "slower" else verdict


def _cells(row: "Row", called: str) -> dict[str, Any]:
    proof = "none" if row.proof is None else "ok" if row.proof.passed else "FAILED"
    cells = {"case": called, "outcome": row.outcome, "verdict": _verdict(row), "proof": proof}
    cells["marks"] = ", ".join(row.marks)
    if row.rate and row.rate_per_device:
        cells["samples/s"] = significant(row.rate.value)
        ends = f"{significant(row.rate.low)} to {significant(row.rate.high)}"
        if row.rate.scatters or row.measured:  # an imported value has no known scatter
            cells["95 % interval"] = ends if row.rate.tells else "not determined"
        cells["per device"] = significant(row.rate_per_device.value)
        cells["ms/step"] = significant(1000 * row.case.global_batch / row.rate.value)
    if row.utilisation:
        cells["of peak"] = f"{row.utilisation:.0%}"
    if row.joules_per_sample:
        cells["J/sample"] = significant(row.joules_per_sample)
    return cells


def _show_rooflines(folder: "RunFolder", json: bool) -> None:
    """Print a table for each case with a measured peak; RequestError if there is none."""
    from suite.analysis.roofline import of_row
    from suite.analysis.summary import summarise

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
