"""What one thing adds to a step, from blocks of steps with and without it in turns: a mean of paired differences.

Means, not medians: an iteration's wall time is the sum of what its steps took, and only means add up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from suite.analysis.stats import student_t
from suite.results.rank_report import Rank


@dataclass(frozen=True)
class Difference:
    """Seconds per step, and the ends of their 95 % interval (Student's t); below zero by noise, or where it helps."""

    value: float
    low: float
    high: float
    of: int  # values that the interval is from: pairs of blocks, or processes

    def scaled(self, factor: float) -> "Difference":
        """The interval of `factor` times the quantity; the factor is positive."""
        return Difference(self.value * factor, self.low * factor, self.high * factor, self.of)


def pairs(ranks: Sequence[Rank], name: str) -> list[tuple[float, float]] | None:
    """(native, other) seconds per step of every pair of blocks, each block's the slowest rank's; None without them."""
    found = [one.pairs_s for one in (rank.passes.get(name) for rank in ranks) if one and one.pairs_s]
    if not found or len(found) < len(ranks):
        return None
    if len(found) == 1:
        return list(found[0])
    turns = (zip(*blocks, strict=True) for blocks in zip(*found, strict=False))
    return [(max(native), max(other)) for native, other in turns]


def difference(of: Sequence[tuple[float, float]]) -> Difference:
    """Native less the other one, from the pairs of one process."""
    return mean([native - other for native, other in of])


def mean(values: Sequence[float], more: float = 0.0) -> Difference:
    """Of two values or more; `more` is a variance that something else adds to that of their mean."""
    middle, count = fmean(values), len(values)
    reach = student_t(0.975, count - 1) * math.sqrt(variance(values, middle) / count + more)
    return Difference(middle, middle - reach, middle + reach, count)


def variance(values: Sequence[float], middle: float) -> float:
    """Around their mean; as `statistics.variance`, which counts in fractions and takes twenty times as long."""
    return sum([(value - middle) ** 2 for value in values]) / (len(values) - 1)


def joined(found: Sequence[Difference]) -> Difference:
    """Over processes: from three on, a value each; of two, whose scatter is one number, the pairs of both.

    The latter's error is no less than half of what they disagree by.
    """
    if len(found) == 1:
        return found[0]
    if len(found) > 2:
        return mean([one.value for one in found])
    values, count = [one.value for one in found], sum(one.of for one in found)
    errors = [(one.high - one.value) / student_t(0.975, one.of - 1) for one in found]
    reach = student_t(0.975, count - 2) * max(math.hypot(*errors) / 2, abs(values[0] - values[1]) / 2)
    return Difference(fmean(values), fmean(values) - reach, fmean(values) + reach, count)


def apart(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """The mean of ours less that of theirs, from a value of each process; None of fewer than three in all."""
    free = len(ours) + len(theirs) - 2
    if not ours or not theirs or free < 1:
        return None
    middles = fmean(ours), fmean(theirs)
    squares = sum((one - middle) ** 2 for side, middle in zip((ours, theirs), middles, strict=True) for one in side)
    reach = student_t(0.975, free) * math.sqrt(squares / free * (1 / len(ours) + 1 / len(theirs)))
    value = middles[0] - middles[1]
    return Difference(value, value - reach, value + reach, free + 2)
