"""How the command line prints: whatever a line holds of others' text, no escape code reaches a terminal."""

from pathlib import Path

import typer

from suite.plain import without_codes
from suite.shell import command_line


def say(line: str, err: bool = False) -> None:
    """Print a line for people."""
    typer.echo(without_codes(line), err=err)


def put(text: str, nl: bool = True) -> None:
    """Print what a program or a file takes, as it is: JSON, a plan."""
    typer.echo(text, nl=nl)


def report_next(run: Path) -> str:
    """The command that comes after a run folder was written, to be pasted."""
    return f"Next: {command_line('stagebench', 'report', run, '-o', run / 'report')}"
