"""`stagebench report`: a run folder to a page. Heavy imports wait until the command runs, so that --help is quick."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.contracts.hooks import hookimpl

if TYPE_CHECKING:
    from suite.comm.records import CommFolder


@hookimpl
def stagebench_commands(app: typer.Typer) -> None:
    """Add `report` to the command line."""
    app.command()(report)


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, as written by `stagebench run` or `comm`.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder of the pages; default: `report` inside the run folder."),
    ] = None,
    single: Annotated[
        bool, typer.Option("--single", help="One file that holds everything but the pages of single cases.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON; write pages only with -o.")] = False,
) -> None:
    """Write HTML pages about a run, finished or not; they need no server and no network."""
    import json as encoder

    from rich.console import Console

    from suite.analysis.summary import left_out, summarise
    from suite.comm.records import KIND, CommFolder
    from suite.results.run_folder import RunFolder, about_of

    if about_of(run).kind == KIND:
        _communication(CommFolder.open(run), output or run / "report", single, json, output is None)
        return
    folder, told = RunFolder.open(run), Console(stderr=True)
    if json:
        typer.echo(encoder.dumps([row.to_dict() for row in summarise(folder)], indent=1))
    if output is not None or not json:
        from reports.site import write, write_single

        page = (write_single if single else write)(folder, output or run / "report")
    note = left_out(folder)
    if note:
        told.print(note, highlight=False, soft_wrap=True)
    if json and output is None:
        return
    (told if json else Console()).print(f"Report: {page}", highlight=False, soft_wrap=True)


def _communication(folder: "CommFolder", directory: Path, single: bool, json: bool, only: bool) -> None:
    """The same for a run of `stagebench comm`; `only`: JSON and no page."""
    import json as encoder

    from reports.comm import write, write_single
    from suite.analysis.links import links

    if json:
        typer.echo(encoder.dumps([link.to_dict() for link in links(folder)], indent=1))
    if not (json and only):
        typer.echo(f"Report: {(write_single if single else write)(folder, directory)}", err=json)
