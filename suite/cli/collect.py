"""`stagebench collect`: several runs to one. Heavy imports wait until the command runs, so that --help is quick."""

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.say import report_next, say


def register(app: typer.Typer) -> None:
    app.command()(collect)


def collect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that hold different cases.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The new run folder.")],
) -> None:
    """Join runs of different cases, such as those of a cluster's jobs, into one that can be reported on."""
    from suite.results.collect import collect as joined

    count = joined(runs, output)
    say(f"{output}: {count} records of {len(runs)} runs\n{report_next(output)}")
