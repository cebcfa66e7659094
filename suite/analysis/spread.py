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

    def overlaps(self, other: "Spread") -> bool:
        """Whether their ends leave no gap between the two: trainings differ as much among themselves."""
        return self.low <= other.high and other.low <= self.high


def spread(values: Sequence[float | None]) -> Spread | None:
    """Of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None
