"""What a person sees while a session works: a live view on a terminal, plain lines when piped."""

import sys
from typing import TextIO

from suite.cli.live import LiveDisplay
from suite.cli.plain import PlainDisplay
from suite.contracts.case import Case
from suite.contracts.observer import Observer
from suite.results.records import Record

__all__ = ["LiveDisplay", "PlainDisplay", "for_terminal"]


def for_terminal(stream: TextIO | None = None) -> Observer[Case, Record]:
    """The observer that suits the stream (stdout when not given)."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return PlainDisplay(stream)
    from rich.console import Console

    return LiveDisplay(Console(file=stream))
