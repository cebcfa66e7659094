"""Values and names in messages: cut where they are long, with what a person may have meant by an unknown one."""

import difflib
from collections.abc import Collection, Iterable, Sequence

from suite.errors import RequestError


def known(value: object, names: Iterable[str]) -> str:
    """What would be right instead: the nearest name if one is near, then all of them."""
    names = list(names)
    near = difflib.get_close_matches(str(value)[:100], names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known: {', '.join(names) or 'none'}"


def chosen(kind: str, asked: Sequence[str], names: Collection[str]) -> list[str]:
    """What was asked for, each once, or everything; RequestError with a suggestion for a name that is unknown."""
    for name in asked:
        if name not in names:
            raise RequestError(f"there is no {kind} {shown(name)}; {known(name, names)}")
    return list(dict.fromkeys(asked or names))


def shown(value: object, most: int = 80) -> str:
    """A value as messages have it: on one line, cut when it is long."""
    return cut(repr(value), most)


def cut(text: str, most: int = 80) -> str:
    """A text as messages have it, cut when it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
