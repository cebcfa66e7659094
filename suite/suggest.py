"""Values and names in messages: cut where they are long, with what a person may have meant by an unknown one."""

import difflib
from collections.abc import Iterable


def known(value: object, names: Iterable[str]) -> str:
    """What would be right instead: the nearest name if one is near, then all of them."""
    names = list(names)
    near = difflib.get_close_matches(str(value)[:100], names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known: {', '.join(names) or 'none'}"


def shown(value: object, most: int = 80) -> str:
    """A value as messages have it: on one line, cut when it is long."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
