"""Text for people: made safe for a terminal, cut, counted, quoted for a shell, escaped for Markdown; numbers; groups.

Text from elsewhere loses its control characters, escape codes and home folders.
"""

import difflib
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from stagebench.suite.errors import RequestError
from stagebench.suite.worker.homes import without_home, without_homes

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
# ECMA-48's sequences (CSI, OSC and its kin, two-character ones), then the other control characters, and the marks that
# change the direction of text.
CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
SIGNS = re.compile(r"[\\`*_\[\]<>|~&#$]")  # begin HTML, a link, an entity or a formula, or end a cell of Markdown


def plain(text: str) -> str:
    """Remove codes and write the user's home folder as `~`; newlines and tabs stay."""
    return without_home(without_codes(text))


def without_codes(text: str) -> str:
    """Remove escape codes and control characters; newlines and tabs stay."""
    return CODES.sub("", text)


def wrapped(text: str, columns: int | None = None) -> str:
    """Wrap a text between words only, to a number of columns; by default to the terminal's."""
    columns = columns or shutil.get_terminal_size().columns
    lines = text.split("\n")
    return "\n".join(textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False) for line in lines)


def known(value: object, names: Iterable[str]) -> str:
    """Return the names to choose from: first the one most like `value`, then all of them."""
    names = list(names)
    near = difflib.get_close_matches(str(value)[:100], names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known: {', '.join(names) or 'none'}"


def chosen(kind: str, asked: Sequence[str], names: Collection[str]) -> list[str]:
    """Return the names asked for, each once, or all names; RequestError with a suggestion for an unknown one."""
    for name in asked:
        if name not in names:
            raise RequestError(f"there is no {kind} {shown(name)}; {known(name, names)}")
    return list(dict.fromkeys(asked or names))


def shown(value: object, most: int = 80) -> str:
    """Write a value for a message: on one line, cut if it is long."""
    return cut(repr(value), most)


def cut(text: str, most: int = 80) -> str:
    """Cut a text for a message if it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def installing(*what: str, python: str = sys.executable) -> str:
    """Return the command that installs packages into a Python's environment; one that uv made has no pip."""
    made = Path(python).parent.parent / "pyvenv.cfg"
    by_uv = made.is_file() and "\nuv = " in made.read_text()
    pip = ("uv", "pip", "install", "--python", python) if by_uv else (python, "-m", "pip", "install")
    return shlex.join((*pip, *what))


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number with its noun: 1 case, 2 cases."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def significant(value: float) -> str:
    """Write three significant digits, with an exponent only for very small and very large values."""
    if value == 0 or not 0.001 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 3 - len(str(int(abs(value))))) if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def duration(seconds: float) -> str:
    """Write seconds as minutes and hours: 0:07, 1:02:03."""
    whole = max(0, round(seconds))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the things by their key; keys, and the things of a key, stay in order."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def command_line(*words: str | Path) -> str:
    """Quote words, so that a shell reads them back; a path never looks like an option."""
    return shlex.join(f"./{word}" if isinstance(word, Path) and str(word)[0] == "-" else str(word) for word in words)


def markdown_text(given: str) -> str:
    """Escape a text to one line of Markdown without markup and home folders."""
    return SIGNS.sub(r"\\\g<0>", _line(given))


def markdown_code(given: str) -> str:
    """Write a text as Markdown's code, for paths and the like."""
    line = _line(given)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if "`" in line else ""  # a reader takes one away on each side
    return f"{fence}{space}{line}{space}{fence}"


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown: two columns of words, then figures."""
    rows = [list(map(markdown_text, line)) for line in (head, *lines)]
    for row in (rows[0], ["---", "---", *["---:"] * (len(head) - 2)], *rows[1:]):
        yield f"| {' | '.join(row)} |"


def _line(given: str) -> str:
    return " ".join(without_homes(without_codes(given)).splitlines())
