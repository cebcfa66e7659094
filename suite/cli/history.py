"""`stagebench history`: when did a case's speed change, and what changed with it? Heavy imports wait."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suite.cli.output import say, show_json, show_rows

if TYPE_CHECKING:
    from suite.analysis.runs import Series


def register(app: typer.Typer) -> None:
    app.command()(history)


def history(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, in any order.")],
    threshold: Annotated[str, typer.Option(metavar="N%", help="Smaller changes do not matter.")] = "3%",
    json: Annotated[bool, typer.Option("--json", help="Print every series as JSON, and nothing else.")] = False,
) -> None:
    """Show each case's speed over runs, the first run of every change, and what else changed there."""
    from suite.analysis.runs import MeasuredRun, left_out
    from suite.analysis.runs import history as every_series
    from suite.session.end_rule import share_of

    least = share_of("--threshold", threshold)
    read = [MeasuredRun.read(path) for path in runs]
    found = every_series(read, least)
    if json:
        show_json([series.to_dict() for series in found], homes=False)
        return
    for series in found:
        _print(series)
    for line in left_out(read):
        say(line)


def _print(series: "Series") -> None:
    from suite.analysis.trend import FEWEST
    from suite.cli.formatting import significant

    changes = {change.at: change for change in series.changes}
    rows: list[dict[str, Any]] = []
    for at, point in enumerate(series.points):
        rate, change = point.row.rate, changes.get(at)
        rows.append(
            {
                "began": point.run.about.created[:16].replace("T", " "),
                "run": str(point.run.path),
                "samples/s": significant(point.rate),
                "95 % interval": f"{significant(rate.low)} to {significant(rate.high)}" if rate else "",
                "change": f"{change.ratio - 1:+.1%}" if change else "",
            }
        )
    show_rows(rows, tuple(rows[0]), series.case.label)
    for change in series.changes:
        point = series.points[change.at]
        what = "; ".join(change.differs) or "nothing that the runs keep"
        say(f"  {change.ratio - 1:+.1%} from {point.run.path} on; what changed there: {what}")
    if not changes:
        few = len(series.points) < FEWEST
        say(f"  {f'too few runs to tell a change: it takes {FEWEST}' if few else 'no change'}")
