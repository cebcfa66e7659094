"""How the command line prints: whatever a line holds of others' text, no escape code reaches a terminal."""

import sys
from pathlib import Path
from typing import TextIO

import typer

from suite.errors import MAY_PASS
from suite.plain import without_codes
from suite.shell import command_line


def say(line: str, err: bool = False) -> None:
    """Print a line for people."""
    typer.echo(without_codes(line), err=err)


def progress(line: str, stream: TextIO | None = None) -> None:
    """Print a line of a run that goes on, at once and as one line; to stdout when no stream is given.

    Output is often a file on the run's own disk: what that refuses for a while comes with a later line, or is lost.
    """
    stream = stream or sys.stdout
    try:
        stream.write(" ".join(without_codes(line).split("\n")) + "\n")
        stream.flush()
    except OSError as error:
        if error.errno not in MAY_PASS:
            raise


def put(text: str, nl: bool = True) -> None:
    """Print what a program or a file takes, as it is: JSON, a plan."""
    typer.echo(text, nl=nl)


def report_next(run: Path) -> str:
    """The command that comes after a run folder was written, to be pasted."""
    return f"Next: {command_line('stagebench', 'report', run, '-o', run / 'report')}"
