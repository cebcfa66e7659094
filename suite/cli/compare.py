"""`stagebench compare`: did anything become faster, or slower? Heavy imports wait until the command runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.output import say, show_json, show_rows

if TYPE_CHECKING:
    from suite.analysis.compare_runs import Compared, Comparison
    from suite.analysis.verdicts import Judged

COLUMNS = ("case", "verdict", "change", "95 % interval", "processes", "needed")


def register(app: typer.Typer) -> None:
    app.command()(compare)


def compare(
    before: Annotated[Path, typer.Argument(help="A run folder.")],
    after: Annotated[Path, typer.Argument(help="A run folder of the same cases, after a change.")],
    threshold: Annotated[str, typer.Option(metavar="N%", help="Smaller changes do not matter.")] = "3%",
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
    from suite.analysis import compare_runs
    from suite.analysis.runs import MeasuredRun
    from suite.errors import RequestError
    from suite.session.end_rule import share_of

    if json and markdown:
        raise RequestError("--json and --markdown both say how to print; leave one of them out")
    least = share_of("--threshold", threshold)
    runs = [MeasuredRun.read(path) for path in (before, after, *(history or []))]
    comparison = compare_runs.compare(runs[0], runs[1], least, runs[2:], across or [])
    if json:
        show_json(comparison.to_dict(), homes=False)
    elif markdown:
        _print_markdown(comparison)
    else:
        _print(comparison)
    raise typer.Exit(compare_runs.EXIT_CODES[comparison.verdict])


def _print(comparison: "Comparison") -> None:
    show_rows([dict(zip(COLUMNS, _cells(case), strict=True)) for case in comparison.cases], COLUMNS)
    for line in (*_notes(comparison), comparison.verdict):
        say(line)


def _print_markdown(comparison: "Comparison") -> None:
    from suite.text import markdown_code, markdown_table, markdown_text

    runs = f"{markdown_code(str(comparison.after))} against {markdown_code(str(comparison.before))}"
    say(f"**{markdown_text(comparison.verdict)}**: {runs}\n")
    for line in markdown_table(COLUMNS, map(_cells, comparison.cases)):
        say(line)
    say("")
    for line in _notes(comparison):
        say(f"- {markdown_text(line)}")


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
    from suite.analysis.trend import FEWEST
    from suite.analysis.verdicts import SAME

    labels_of: dict[str, list[str]] = {}
    for case in comparison.cases:
        for why in case.bars:
            labels_of.setdefault(f"not comparable: {why}", []).append(case.case.label)
        for what in case.differs:
            labels_of.setdefault(f"not the same: {what}", []).append(case.case.label)
        if case.found and case.verdict == SAME and case.found.resolution > comparison.threshold:
            unseen = f"a slow-down of {comparison.threshold:.1%} might not have shown"
            labels_of.setdefault(f"{unseen}: {_remedy(case.found, case.runs is not None)}", []).append(case.case.label)
    for line, labels in labels_of.items():
        yield f"{line} ({len(labels)} cases)" if len(labels) > 1 else f"{labels[0]}: {line}"
    yield from comparison.unused
    if any(case.found and not case.runs for case in comparison.cases):
        yield f"how much equal runs differ is not known: name {FEWEST - 1} earlier ones or more, --history each"


def _remedy(judged: "Judged", runs_known: bool) -> str:
    if judged.needs:
        return "measure as many processes in each run as `needed` says"
    return (
        f"{'equal runs' if runs_known else 'processes'} differ too much for any number of processes; quiet the machine"
    )
