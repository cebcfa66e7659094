"""Markdown for an issue or a pull request; text from elsewhere is escaped."""

import re
from collections.abc import Iterable, Iterator, Sequence

from suite.plain import without_codes
from suite.worker.homes import without_homes

SIGNS = re.compile(r"[\\`*_\[\]<>|~&#$]")  # begin HTML, a link, an entity or a formula, or end a cell


def text(given: str) -> str:
    """Escape a text to one line without markup and home folders."""
    return SIGNS.sub(r"\\\g<0>", _line(given))


def code(given: str) -> str:
    """Write a text as code, for paths and the like."""
    line = _line(given)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""  # a reader takes one away on each side
    return f"{fence}{space}{line}{space}{fence}"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: two columns of words, then figures."""
    yield _row(map(text, head))
    yield _row(["---", "---", *["---:"] * (len(head) - 2)])
    yield from (_row(map(text, line)) for line in lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _line(given: str) -> str:
    return " ".join(without_homes(without_codes(given)).splitlines())
