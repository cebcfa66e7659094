"""`stagebench compare` and `stagebench history`: did anything become faster, or slower, when, and what changed with it?

Heavy imports wait until the commands run.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stagebench.suite.cli.output import say, show_json, show_rows
from stagebench.suite.errors import RequestError
from stagebench.suite.text import markdown_code, markdown_table, markdown_text, significant

if TYPE_CHECKING:
    from stagebench.suite.analysis.compare_runs import Compared, Comparison
    from stagebench.suite.analysis.runs import Series

COLUMNS = ("case", "verdict", "change", "95 % interval", "processes", "needed")


Threshold = Annotated[str, typer.Option(metavar="N%", help="Smaller changes do not matter.")]


def compare(
    before: Annotated[Path, typer.Argument(help="A run folder.")],
    after: Annotated[Path, typer.Argument(help="A run folder of the same cases, after a change.")],
    threshold: Threshold = "3%",
    history: Annotated[
        list[Path] | None,
        typer.Option(help="A further run of these cases (repeatable): how much they differ from run to run."),
    ] = None,
    across: Annotated[
        list[str] | None, typer.Option(help="machine or knobs (repeatable): compare though this differs.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON, and nothing else.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print it as a pull request shows it.")] = False,
) -> None:
    """Compare two runs, case by case; exit code 0: same or faster, 1: slower, 2: not comparable."""
    from stagebench.suite.analysis import compare_runs
    from stagebench.suite.analysis.runs import MeasuredRun
    from stagebench.suite.session.end_rule import share_of

    if json and markdown:
        raise RequestError("--json and --markdown both say how to print; leave one of them out")
    least = share_of("--threshold", threshold)
    runs = [MeasuredRun.read(path) for path in (before, after, *(history or []))]
    comparison = compare_runs.compare(runs[0], runs[1], least, runs[2:], across or [])
    rows, notes = [_cells(case) for case in comparison.cases], list(_notes(comparison))
    if json:
        show_json(comparison.to_dict(), homes=False)
    elif markdown:
        names = f"{markdown_code(str(comparison.after))} against {markdown_code(str(comparison.before))}"
        head = f"**{markdown_text(comparison.verdict)}**: {names}\n"
        for line in (head, *markdown_table(COLUMNS, rows), "", *(f"- {markdown_text(note)}" for note in notes)):
            say(line)
    else:
        show_rows([dict(zip(COLUMNS, cells, strict=True)) for cells in rows], COLUMNS)
        for line in (*notes, comparison.verdict):
            say(line)
    raise typer.Exit(compare_runs.EXIT_CODES[comparison.verdict])


def _cells(case: "Compared") -> tuple[str, ...]:
    """Return the cells of a row, in the order of COLUMNS."""
    counts = " and ".join(str(len(row.measured)) for row in (case.before, case.after) if row)
    if case.found is None:
        return case.case.label, case.verdict, "", "", counts, ""
    ratio, needs = case.found.ratio, case.found.needs
    change, interval = f"{ratio.value - 1:+.1%}", f"{ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}"
    return case.case.label, case.verdict, change, interval, counts, str(needs) if needs else "-"


def _notes(comparison: "Comparison") -> Iterable[str]:
    """Yield the notes below the table; a note that several cases share comes once."""
    from stagebench.suite.analysis.compare_runs import SAME
    from stagebench.suite.analysis.trend import FEWEST

    labels_of: dict[str, list[str]] = {}
    for case in comparison.cases:
        bars, differs = (f"not comparable: {why}" for why in case.bars), (f"not the same: {it}" for it in case.differs)
        for words in (*bars, *differs, *case.latency):
            labels_of.setdefault(words, []).append(case.case.label)
        if case.found and case.verdict == SAME and case.found.resolution > comparison.threshold:
            remedy = "measure as many processes in each run as `needed` says"
            if not case.found.needs:
                alike = "processes" if case.runs is None else "equal runs"
                remedy = f"{alike} differ too much for any number of processes; quiet the machine"
            unseen = f"a slow-down of {comparison.threshold:.1%} might not have shown: {remedy}"
            labels_of.setdefault(unseen, []).append(case.case.label)
    for line, labels in labels_of.items():
        yield f"{line} ({len(labels)} cases)" if len(labels) > 1 else f"{labels[0]}: {line}"
    yield from comparison.unused
    if any(case.found and not case.runs for case in comparison.cases):
        yield f"how much equal runs differ is not known: name {FEWEST - 1} earlier ones or more, --history each"


def history(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, in any order.")],
    threshold: Threshold = "3%",
    json: Annotated[bool, typer.Option("--json", help="Print every series as JSON, and nothing else.")] = False,
) -> None:
    """Show each case's speed over runs, the first run of every change, and what else changed there."""
    from stagebench.suite.analysis.runs import MeasuredRun, left_out
    from stagebench.suite.analysis.runs import history as every_series
    from stagebench.suite.session.end_rule import share_of

    least = share_of("--threshold", threshold)
    read = [MeasuredRun.read(path) for path in runs]
    found = every_series(read, least)
    if json:
        show_json([series.to_dict() for series in found], homes=False)
        return
    for series in found:
        _print_series(series)
    for line in left_out(read):
        say(line)


def _print_series(series: "Series") -> None:
    from stagebench.suite.analysis.trend import FEWEST

    changes = {change.at: change for change in series.changes}
    rows: list[dict[str, Any]] = []
    for at, point in enumerate(series.points):
        rate, change = point.level, changes.get(at)
        rows.append(
            {
                "began": point.run.about.created[:16].replace("T", " "),
                "run": str(point.run.path),
                point.row.unit: significant(rate.value),
                "95 % interval": f"{significant(rate.low)} to {significant(rate.high)}",
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
