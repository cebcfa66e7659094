"""Several trainings of one case: the median and its ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """The median of several trainings, and their ends."""

    value: float
    low: float
    high: float
    of: int  # how many


def spread(values: Sequence[float | None]) -> Spread | None:
    """Of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None
