"""The trace of a load: a text file with the seconds at which queries arrived, one a line; `#` begins a comment.

A case has the file's full path, an @ and a digest of the arrivals.
"""

import hashlib
import math
import re
from functools import lru_cache
from pathlib import Path

from stagebench.suite.text import shown
from stagebench.suite.worker.case_parts import ARRIVALS

MOST, LONGEST_S = 1_000_000, 240.0  # queries; seconds, without any sign of progress
DIGEST = re.compile(r"(.+)@([0-9a-f]{12})")


def with_digest(path: str) -> str:
    """Return how a case calls a trace; ValueError names the file, line and value of what is none."""
    found = DIGEST.fullmatch(path)
    named = f"{found[1] if found else path}@{_digest(_read(found[1] if found else path))}"
    if found:
        arrival_times(path)
    return named


@lru_cache(maxsize=8)
def arrival_times(arrivals: str) -> tuple[float, ...]:
    """Return a trace's arrivals, from 0, as a case calls it; none for a word of ARRIVALS.

    ValueError: it is not there, or another one by now.
    """
    if arrivals in ARRIVALS:
        return ()
    path, _, digest = arrivals.rpartition("@")
    found = _read(path)
    if _digest(found) != digest:
        raise ValueError(f"the trace {path} is another one by now, of digest {_digest(found)}; it was {digest}")
    return found


def _digest(times: tuple[float, ...]) -> str:
    return hashlib.sha256(repr(times).encode()).hexdigest()[:12]


def _read(path: str) -> tuple[float, ...]:
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, ValueError) as error:
        words = ", ".join(ARRIVALS)
        raise ValueError(f"the trace {path} cannot be read: {error}; write a file's path, or {words}") from None
    found: list[float] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            found.append(_seconds(text, found[-1] if found else 0.0, f"{path}:{number}"))
    length = found[-1] - found[0] if found else 0.0
    if not (2 <= len(found) <= MOST and 0.0 < length <= LONGEST_S):
        raise ValueError(
            f"the trace {path} has {len(found):,} queries within {length:g} s; write 2 to {MOST:,}, not all at one "
            f"time, within {LONGEST_S:g} s"
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
