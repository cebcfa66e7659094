"""How long the ranks may wait for their turn, where an engine has a queue."""

import os

from suite.errors import Unavailable


def queue_limit(variable: str, usual: float) -> float:
    """Seconds, as the variable says them, or the usual ones; Unavailable when it holds no such number."""
    given = os.environ.get(variable, str(usual))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise Unavailable(f"{variable} is {given!r}; it is a number of seconds above 0 (without it {usual:g})")
    return seconds
