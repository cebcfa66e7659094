"""The trace of a load: a text file with the seconds at which queries arrived, one a line; `#` begins a comment."""

import math
from functools import lru_cache
from pathlib import Path

from suite.text import shown
from suite.worker.case_parts import ARRIVALS

MOST = 1_000_000  # queries


@lru_cache(maxsize=8)
def arrival_times(arrivals: str) -> tuple[float, ...]:
    """Return a trace's arrivals, from 0; none for a word of ARRIVALS. ValueError names the file, line and value."""
    if arrivals in ARRIVALS:
        return ()
    try:
        lines = Path(arrivals).read_text().splitlines()
    except (OSError, ValueError) as error:
        words = ", ".join(ARRIVALS)
        raise ValueError(f"the trace {arrivals} cannot be read: {error}; write a file's path, or {words}") from None
    found: list[float] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            found.append(_seconds(text, found[-1] if found else 0.0, f"{arrivals}:{number}"))
    if not 2 <= len(found) <= MOST or found[-1] == found[0]:
        raise ValueError(
            f"the trace {arrivals} has {len(found):,} queries within {found[-1] - found[0] if found else 0:g} s; write "
            f"2 to {MOST:,}, not all at one time"
        )
    return tuple(at - found[0] for at in found)


def _seconds(text: str, before: float, place: str) -> float:
    try:
        at = float(text)
    except ValueError:
        at = math.nan
    if not 0.0 <= at < math.inf:
        raise ValueError(f"{place}: {shown(text)} is no number of seconds from 0 on; write one a line")
    if at < before:
        raise ValueError(f"{place}: the trace goes back in time, from {before:g} to {at:g} s; sort its lines")
    return at
