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
    found = compare_runs.compare(runs[0], runs[1], least, runs[2:], across or [])
    if json:
        show_json(found.to_dict(), homes=False)
    elif markdown:
        _print_markdown(found)
    else:
        _print(found)
    raise typer.Exit(compare_runs.EXIT_CODES[found.verdict])


def _print(found: "Comparison") -> None:

    show_rows([dict(zip(COLUMNS, _cells(one), strict=True)) for one in found.cases], COLUMNS)
    for line in (*_notes(found), found.verdict):
        say(line)


def _print_markdown(found: "Comparison") -> None:
    from suite.markdown import code, table, text

    say(f"**{text(found.verdict)}**: {code(str(found.after))} against {code(str(found.before))}\n")
    for line in (*table(COLUMNS, map(_cells, found.cases)), "", *(f"- {text(line)}" for line in _notes(found))):
        say(line)


def _cells(one: "Compared") -> tuple[str, ...]:
    """Return the cells of a row, in the order of COLUMNS."""
    counts = " and ".join(str(len(row.measured)) for row in (one.before, one.after) if row)
    if one.found is None:
        return one.case.label, one.verdict, "", "", counts, ""
    ratio, needs = one.found.ratio, one.found.needs
    change, interval = f"{ratio.value - 1:+.1%}", f"{ratio.low - 1:+.1%} to {ratio.high - 1:+.1%}"
    return one.case.label, one.verdict, change, interval, counts, str(needs) if needs else "-"


def _notes(found: "Comparison") -> Iterable[str]:
    """Yield the notes below the table; a note that several cases share comes once."""
    from suite.analysis.trend import FEWEST
    from suite.analysis.verdicts import SAME

    labels_of: dict[str, list[str]] = {}
    for one in found.cases:
        for why in one.bars:
            labels_of.setdefault(f"not comparable: {why}", []).append(one.case.label)
        for what in one.differs:
            labels_of.setdefault(f"not the same: {what}", []).append(one.case.label)
        if one.found and one.verdict == SAME and one.found.resolution > found.threshold:
            unseen = f"a slow-down of {found.threshold:.1%} might not have shown"
            labels_of.setdefault(f"{unseen}: {_remedy(one.found, one.runs is not None)}", []).append(one.case.label)
    for line, labels in labels_of.items():
        yield f"{line} ({len(labels)} cases)" if len(labels) > 1 else f"{labels[0]}: {line}"
    yield from found.unused
    if any(one.found and not one.runs for one in found.cases):
        yield f"how much equal runs differ is not known: name {FEWEST - 1} earlier ones or more, --history each"


def _remedy(found: "Judged", runs_known: bool) -> str:
    if found.needs:
        return "measure as many processes in each run as `needed` says"
    return (
        f"{'equal runs' if runs_known else 'processes'} differ too much for any number of processes; quiet the machine"
    )
