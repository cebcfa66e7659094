"""Where a series of values changed its level: the fewest stretches of equal level that explain it.

Every change must explain more than noise would by chance: the sum of squares about the stretches' means, over the
variance of the noise, plus a fixed price for every change is made as small as can be, over all ways to divide the
series (optimal partitioning: B. Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005).
The noise is that of neighbours' differences, of which a few may be changes; the price is what Student's t pays for
having looked at every place.
One value that is far from its neighbours is an outlier, not a level.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from suite.analysis.stats import Values, centre, student_t

# Of the test at every place. Neighbouring places are alike, so that this is wrong for 1 steady series of 20 or fewer
# (tests/benchmarks/comparing.py).
LEVEL = 0.85
FAR = 3.0  # deviations of the noise
SHORTEST = 2  # values of a stretch
FEWEST = 2 * SHORTEST + 1  # values in which a change can be told from noise


class Noise(NamedTuple):
    """Of single values about their stretch's mean."""

    deviation: float  # standard
    degrees: int  # of freedom


def change_points(values: Sequence[float], least: float = 0.0) -> list[int]:
    """Where each new stretch begins; none of fewer than FEWEST values. A change is larger than `least`."""
    count = len(values)
    if count < FEWEST:
        return []
    steps = centre(np.diff(values))
    deviation = steps.error * math.sqrt(steps.count / 2)
    price = (deviation * student_t(1 - (1 - LEVEL) / 2 / (count - 1), steps.degrees)) ** 2
    return _larger(values, _cheapest(_tamed(values, FAR * deviation), price), least)


def noise(values: Sequence[float]) -> Noise | None:
    """About the levels that the series had; None of fewer than FEWEST values."""
    if len(values) < FEWEST:
        return None
    stretches = _stretches(values, change_points(values))
    degrees = len(values) - len(stretches)
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in stretches)
    return Noise(math.sqrt(squares / degrees), degrees)


def _tamed(values: Sequence[float], most: float) -> Values:
    """With every value at most so far from the median of itself and its neighbours."""
    middle = np.median(sliding_window_view(np.pad(values, 1, mode="reflect"), 3), axis=1)
    return np.clip(values, middle - most, middle + most)


def _cheapest(values: Values, price: float) -> list[int]:
    """Where the stretches of the division with the lowest cost begin, without the first."""
    sums, squares = (np.concatenate([[0.0], each.cumsum()]) for each in (values, values**2))
    best, begins = [-price], [0]
    for end in range(1, len(values) + 1):
        costs = [
            best[begin] + price + float(squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin))
            if end - begin >= SHORTEST
            else math.inf
            for begin in range(end)
        ]
        begins.append(int(np.argmin(costs)))
        best.append(costs[begins[-1]])
    found, end = [], begins[-1]
    while end:
        found.append(end)
        end = begins[end]
    return found[::-1]


def _stretches(values: Sequence[float], begins: Sequence[int]) -> list[Values]:
    return np.split(np.asarray(values, dtype=np.float64), begins)


def _larger(values: Sequence[float], found: list[int], least: float) -> list[int]:
    """Without the changes that are no larger than `least`, the smallest first."""
    while found:
        sizes = np.abs(np.diff([each.mean() for each in _stretches(values, found)]))
        smallest = int(np.argmin(sizes))
        if sizes[smallest] > least:
            return found
        found = [*found[:smallest], *found[smallest + 1 :]]
    return found
