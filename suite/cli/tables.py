"""One way of showing rows: a table on a terminal, aligned lines when piped, JSON when asked."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from suite.cli.say import put, say
from suite.plain import without_codes
from suite.worker.homes import without_homes

Row = dict[str, Any]

SHORT, NAME = 16, 24  # columns of words, and of names without a space, no longer than this are never broken


def show(rows: Sequence[Row], columns: Sequence[str], title: str = "", as_json: bool = False) -> None:
    """Print the named columns of the rows, whole: nothing is cut off when piped. JSON has all columns."""
    if as_json:
        show_json(rows)
        return
    title = without_codes(title)
    cells = [[without_codes(words(row.get(column))) for column in columns] for row in rows]
    if not cells:
        say(f"{title}: none is installed" if title else "none is installed")
        return
    if sys.stdout.isatty() and _table(cells, columns, title):
        return
    if title:
        say(title)
    lines = [list(columns), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_json(content: Any, homes: bool = True) -> None:
    """Print JSON that a program may read; without `homes` nobody's home folder is in it: it may be published."""
    text = json.dumps(content, indent=1, default=str)
    put(text if homes else without_homes(text))


def words(value: Any) -> str:
    """A cell: lists joined, yes and no, thousands apart, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple | dict):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _table(cells: list[list[str]], columns: Sequence[str], title: str) -> bool:
    """Print a table that breaks headers and long words, but no number; False where the terminal is too narrow."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(), Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title, table.title_justify = Text(title, style="bold") if title else None, "left"
    by_column = list(zip(*cells, strict=True))
    widths = _widths(by_column, columns, console.width - 2 * len(columns))  # less the gaps, and the edges
    if widths is None:
        return False
    for name, column, width in zip(columns, by_column, widths, strict=True):
        known = [cell for cell in column if cell]
        numeric = bool(known) and all(cell.replace(",", "").replace(".", "").isdigit() for cell in known)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", width=width)
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)
    return True


def _widths(by_column: Sequence[Sequence[str]], names: Sequence[str], room: int) -> list[int] | None:
    """As wide as its cells for each column, or SHORT for long words.

    What is left goes to the headers' words, then to whole headers, then to words.
    """
    longest = [max(map(len, column)) for column in by_column]
    widths = [
        width if width <= (SHORT if any(" " in cell for cell in column) else NAME) else SHORT
        for width, column in zip(longest, by_column, strict=True)
    ]
    left = room - sum(widths)
    if left < 0:
        return None
    words_of_names = [max(map(len, name.split()), default=0) for name in names]
    for wanted in (words_of_names, [len(name) for name in names], longest):
        for at, width in enumerate(wanted):
            more = min(left, max(0, width - widths[at]))
            widths[at], left = widths[at] + more, left - more
    return widths
