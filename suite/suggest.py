"""What a person may have meant by a name that does not exist."""

import difflib
from collections.abc import Iterable


def known(value: object, names: Iterable[str]) -> str:
    """What would be right instead: the nearest name if one is near, then all of them."""
    names = list(names)
    near = difflib.get_close_matches(str(value), names, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known: {', '.join(names) or 'none'}"
