"""The end of `run` and `comm`: outcome counts, the next command, the exit code."""

from collections import Counter
from functools import partial
from pathlib import Path

import typer

from stagebench.suite.cli.output import report_next, say
from stagebench.suite.session.resumable import FAILURES

warn = partial(say, err=True)


def conclude(path: Path, outcomes: Counter[str], quiet: bool, last: bool = True) -> None:
    """Print the outcome counts and, of a `last` command, the next one, unless `quiet`; exit with 1 if a case failed."""
    if not quiet:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        say("\n".join([f"{path}: {counts}", *([report_next(path)] if last else [])]))
    if any(outcomes[failure] for failure in FAILURES):
        raise typer.Exit(1)
