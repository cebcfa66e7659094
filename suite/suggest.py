"""Values, names and counts in messages: long ones cut, and for an unknown name the one that was meant."""

import difflib
from collections.abc import Collection, Iterable, Sequence

from suite.errors import RequestError


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


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number with its noun: 1 case, 2 cases."""
    return f"{count} {one if count == 1 else many or one + 's'}"
