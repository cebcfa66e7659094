"""The problems of a plan: all in one message, each with its line or its option.

tomllib gives values without their lines, so the text is scanned once more. tomllib has accepted it, so the scanner
trusts its grammar.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stagebench.suite.errors import RequestError

MOST_LISTED = 50  # problems that a message lists
KeyPath = tuple[str | int, ...]  # ("cases", 0, "ranks", 1)


@dataclass
class Problems:
    """The problems of one plan; equal ones are kept once."""

    file: Path
    lines: "Lines"
    option: Callable[[KeyPath], str | None] = lambda path: None  # the option that a value comes from
    found: set[tuple[int, str, str]] = field(default_factory=set)

    def add(self, path: KeyPath, message: str) -> None:
        self.found.add((0 if self.option(path) else self.lines.line(path), self.at(path), message))

    def at(self, path: KeyPath) -> str:
        """Return `file:line` of a key path, or the option that it comes from."""
        return self.option(path) or f"{self.file}:{self.lines.line(path)}"

    def raise_any(self) -> None:
        """Raise a RequestError that lists all problems in the plan's order, if there are any; known names once."""
        if not self.found:
            return
        listed, said = [], set()
        for _, place, message in sorted(self.found):
            problem, known, names = message.partition("known: ")
            listed.append(f"{place}: {problem}{known}{'as above' if names and names in said else names}")
            said.add(names)
        count = "one problem" if len(listed) == 1 else f"{len(listed):,} problems"
        listed[MOST_LISTED:] = [f"and {len(listed) - MOST_LISTED:,} more"] if len(listed) > MOST_LISTED else []
        raise RequestError(f"the plan has {count}; nothing was started\n" + "\n".join(listed))


_TOKEN = re.compile(
    r'''
    (?P<string> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
  | (?P<skip>   \#[^\n]* | [ \t\r]+ )
  | (?P<mark>   [\n\[\]{},=.] )
  | (?P<word>   [^\s\[\]{},=.\#"']+ )
    ''',
    re.VERBOSE | re.DOTALL,
)


class Lines:
    """Lines of every key and array element of a TOML text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skip":
                self._tokens.append((match.group(), line))
            line += match.group().count("\n")
        self._at = 0
        self._counts: dict[KeyPath, int] = {}  # arrays of tables seen so far
        base: KeyPath = ()
        while self._at < len(self._tokens):
            if self._peek() == "\n":
                self._at += 1
            elif self._peek() == "[":
                base = self._header()
            else:
                self._pair(base)

    def line(self, path: KeyPath) -> int:
        """Return the line of a path, or of the nearest enclosing one; 1 without one."""
        enclosing = (path[:end] for end in range(len(path), 0, -1))
        return next((self._lines[each] for each in enclosing if each in self._lines), 1)

    def _peek(self, ahead: int = 0) -> str:
        index = self._at + ahead
        return self._tokens[index][0] if index < len(self._tokens) else "\n"

    def _note(self, path: KeyPath) -> None:
        self._lines.setdefault(path, self._tokens[min(self._at, len(self._tokens) - 1)][1])

    def _header(self) -> KeyPath:
        array = self._peek(1) == "["
        self._at += 2 if array else 1
        path: KeyPath = ()
        keys = self._key()
        for position, key in enumerate(keys):
            path += (key,)
            if array and position == len(keys) - 1:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                self._note(path)
                path += (self._counts[path] - 1,)
            self._note(path)
        self._at += 2 if array else 1
        return path

    def _key(self) -> list[str]:
        """Read a dotted key up to `=` or `]`."""
        keys = []
        while self._peek() not in ("=", "]"):
            if self._peek() != ".":
                keys.append(self._peek().strip("\"'"))
            self._at += 1
        return keys

    def _pair(self, base: KeyPath) -> None:
        begin = self._at
        path = base
        for key in self._key():
            path += (key,)
            self._lines.setdefault(path, self._tokens[begin][1])
        self._at += 1  # =
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        """Read a value: an array or an inline table to its end, anything else up to the next mark."""
        self._note(path)
        close = {"[": "]", "{": "}"}.get(self._peek())
        if close is None:
            while self._at < len(self._tokens) and self._peek() not in ("\n", ",", "]", "}"):
                self._at += 1
            return
        self._at += 1
        index = 0
        while self._peek() != close:
            if self._peek() in ("\n", ","):
                self._at += 1
            elif close == "}":
                self._pair(path)
            else:
                self._value((*path, index))
                index += 1
        self._at += 1
