"""All that the command line prints: lines, tables (aligned lines when piped), JSON, and the names of cases.

Escape codes in names, messages and paths never reach the terminal.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any

import typer

from stagebench.suite.contracts.case import Case
from stagebench.suite.errors import MAY_PASS
from stagebench.suite.text import command_line, duration, grouped, without_codes, wrapped
from stagebench.suite.worker.homes import without_homes

if TYPE_CHECKING:
    from rich.console import Console

Row = dict[str, Any]

PIPED = 120  # columns of a sentence in a pipe or a file
SHORT, NAME = 16, 24  # widths: a cell of words, or a name without a space, is never broken below these


def say(line: str, err: bool = False) -> None:
    """Print a line for people."""
    typer.echo(without_codes(line), err=err)


def say_wrapped(line: str) -> None:
    """Print a sentence for people, broken between words; never a command, which is to be pasted."""
    say(wrapped(without_codes(line), None if sys.stdout.isatty() else PIPED))


def progress(line: str, stream: IO[str] | None = None) -> None:
    """Print one line of a run at once; to stdout by default.

    Output is often a file on the run's own disk: if that is full for a while, the line comes later or is lost.
    """
    stream = stream or sys.stdout
    try:
        stream.write(" ".join(without_codes(line).split("\n")) + "\n")
        stream.flush()
    except OSError as error:
        if error.errno not in MAY_PASS:
            raise


@contextmanager
def pulsing(doing: Callable[[], str], console: "Console", every: float = 60.0) -> Iterator[None]:
    """Print what is being done once in `every` seconds to a log, where a proof of minutes would look like a hang."""
    begun, ended = time.monotonic(), Event()

    def pulse() -> None:
        while not ended.wait(every):
            with suppress(OSError, ValueError):  # the command itself meets what became of its output
                progress(f"{duration(time.monotonic() - begun)} so far; {doing()}", console.file)

    if not console.is_terminal:
        Thread(target=pulse, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def put(text: str, nl: bool = True) -> None:
    """Print unchanged text for a program or a file: JSON, a plan."""
    typer.echo(text, nl=nl)


def show_json(content: Any, homes: bool = True) -> None:
    """Print JSON for a program. Without `homes` it may be published: home folders are replaced by `~`."""
    text = json.dumps(content, indent=1, default=str)
    put(text if homes else without_homes(text))


def report_next(run: Path) -> str:
    """Return a line with the command that reports on a run folder, to be pasted."""
    return f"Next: {command_line('stagebench', 'report', run, '-o', run / 'report')}"


def show_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    title: str = "",
    as_json: bool = False,
    console: "Console | None" = None,
) -> None:
    """Print the named columns of the rows to `console` (default: stdout); JSON has all columns.

    A terminal that is wide enough gets a table, everything else aligned lines in which nothing is cut off.
    """
    if as_json:
        show_json(rows)
        return
    title = without_codes(title)
    cells = [[without_codes(words(row.get(column))) for column in columns] for row in rows]
    if not cells:
        say(f"{title}: none is installed" if title else "none is installed")
        return
    if (console.is_terminal if console else sys.stdout.isatty()) and _table(cells, columns, title, console):
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    aligned = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    for line in [title, *aligned] if title else aligned:
        progress(line.rstrip(), console.file if console else None)


def words(value: Any) -> str:
    """Write a cell: lists joined, yes and no, thousands apart, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple | dict):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _table(cells: list[list[str]], columns: Sequence[str], title: str, console: "Console | None") -> bool:
    """Print a table that breaks headers and long words, but no number; False if the terminal is too narrow."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.title, table.title_justify = Text(title, style="bold") if title else None, "left"
    by_column = list(zip(*cells, strict=True))
    widths = _widths(by_column, columns, console.width - 2 * len(columns))  # less the gaps, and the edges
    if widths is None:
        return False
    for name, column, width in zip(columns, by_column, widths, strict=True):
        filled = [cell for cell in column if cell]
        numeric = bool(filled) and all(cell.replace(",", "").replace(".", "").isdigit() for cell in filled)
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", width=width)
    for line in cells:
        table.add_row(*map(Text, line))
    console.print(table)
    return True


def _widths(by_column: Sequence[Sequence[str]], names: Sequence[str], room: int) -> list[int] | None:
    """Return each column's width: that of its cells, or SHORT for long words; None if `room` is too small.

    The rest of the room goes to the headers' words, then to whole headers, then to words.
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
    for wished in (words_of_names, [len(name) for name in names], longest):
        for index, width in enumerate(wished):
            more = min(left, max(0, width - widths[index]))
            widths[index], left = widths[index] + more, left - more
    return widths


def label(case: Case, width: int, more: str = "") -> str:
    """Return the case's full label if it fits, else adapter/strategy workload devices x batch; then `more`."""
    short = f"{case.adapter}/{case.strategy} {case.workload} {case.placement.device_count}×{case.batch}"  # noqa: RUF001
    full, less = (f"{name} {more}".rstrip() for name in (case.label, short))
    return full if len(full) <= width else less


def apart(cases: Iterable[Case]) -> dict[str, str]:
    """Return, by id, the settings in which cases of one label differ; the tuning if any cases differ in it."""
    cases = list(cases)
    always = {"tuning"} if len({case.tuning for case in cases}) > 1 else set()
    words: dict[str, str] = {}
    for alike in grouped(cases, lambda case: case.label).values():
        settings = [_settings(case) for case in alike]
        names = dict.fromkeys(name for values in settings for name in values)
        differing = [
            name for name in names if name in always or len({str(values.get(name)) for values in settings}) > 1
        ]
        for case, values in zip(alike, settings, strict=True):
            named = [(name.rpartition(".")[2], values[name]) for name in differing if name in values]
            words[case.id] = " ".join(value if isinstance(value, str) else f"{name}={value}" for name, value in named)
    return words


def _settings(case: Case) -> dict[str, Any]:
    """Return all values; those of a part under the part's name, too, since a knob may be called `mode`."""
    values: dict[str, Any] = {}
    for name, value in case.to_dict().items():
        if isinstance(value, dict):
            values |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name == "passes":
            values[name] = f"{value[0]} alone" if len(value) == 1 else f"{len(value)} passes"
        elif name != "graph_digest":  # the workload's name says as much
            values[name] = value
    return values
