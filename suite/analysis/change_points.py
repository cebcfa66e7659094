"""Where a series of values changed its level: the fewest stretches of equal level that explain it.

The best division into two, three, ... stretches has the smallest sum of squares about the stretches' means, over all
ways to divide the series (B. Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005).
What is left about a division's means is its noise: no other estimate of it has as many degrees of freedom, and a short
series has few. A division is taken if Student's t, looking at every place, would hardly find its changes in a steady
series. One value that is far from its neighbours is an outlier, not a level.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from suite.analysis.stats import LEVEL, Values, centre, student_t

CHANCE = 0.05  # of a change in a steady series; the longer it is the fewer, since neighbouring places are alike
FAR = 3.0  # deviations of the noise
SHORTEST = 2  # values of a stretch
FEWEST = 2 * SHORTEST + 1  # values in which a change can be told from noise
EXACT = 1e-15  # of the sum of squares; what is less is rounding


class Noise(NamedTuple):
    """Of single values about their stretch's mean."""

    deviation: float  # standard
    degrees: int  # of freedom


def change_points(values: Sequence[float], least: float = 0.0) -> list[int]:
    """Where each new stretch begins; none of fewer than FEWEST values. What is surely below `least` is no change."""
    if len(values) < FEWEST:
        return []
    steps = centre(np.diff(values))
    deviation = steps.error * math.sqrt(steps.count / 2)
    return _large(values, _certain(_tamed(values, FAR * deviation)), least)


def noise(values: Sequence[float]) -> Noise | None:
    """About the levels that the series had; None of fewer than FEWEST values."""
    return _about(values, change_points(values)) if len(values) >= FEWEST else None


def _tamed(values: Sequence[float], most: float) -> Values:
    """With every value at most so far from the median of itself and its neighbours."""
    middle = np.median(sliding_window_view(np.pad(values, 1, mode="reflect"), 3), axis=1)
    return np.clip(values, middle - most, middle + most)


def _certain(values: Values) -> list[int]:
    """Where the stretches of the likeliest division begin, without the first, once changes have paid for their number.

    One change has t^2 = (squares without it / squares with it - 1) x degrees of freedom, and pays what is critical.
    """
    count, places = len(values), len(values) - 2 * SHORTEST + 1
    divisions = _divisions(values - values.mean(), count // (2 * SHORTEST))
    whole, best = next(divisions)
    if not whole:
        return best
    price = least = 0.0
    for changes, (squares, begins) in enumerate(divisions, 1):
        degrees = count - changes - 1
        price += math.log1p(student_t(1 - CHANCE / 2 / places, degrees) ** 2 / degrees)
        cost = math.log(max(squares / whole, EXACT)) + price
        if cost < least:
            best, least = begins, cost
    return best


def _divisions(values: Values, most: int) -> Iterator[tuple[float, list[int]]]:
    """The best divisions with 0, 1, ... `most` changes: the sum of squares of each, and where its changes are."""
    count = len(values)
    sums, squares = (np.concatenate([[0.0], each.cumsum()]) for each in (values, values**2))
    length = np.arange(count + 1) - np.arange(count + 1)[:, np.newaxis]  # of a stretch, by where it begins and ends
    own = squares - squares[:, np.newaxis] - (sums - sums[:, np.newaxis]) ** 2 / np.maximum(length, 1)
    own = np.where(length < SHORTEST, np.inf, np.maximum(own, 0.0))
    best, begins = own[0], []
    yield float(best[count]), []
    for _ in range(most):
        options = best[:, np.newaxis] + own
        begins.append(options.argmin(axis=0))
        best = options.min(axis=0)
        found = [count]
        for begin in reversed(begins):
            found.append(int(begin[found[-1]]))
        yield float(best[count]), found[:0:-1]


def _stretches(values: Sequence[float], begins: Sequence[int]) -> list[Values]:
    return np.split(np.asarray(values, dtype=np.float64), begins)


def _about(values: Sequence[float], begins: Sequence[int]) -> Noise:
    stretches = _stretches(values, begins)
    degrees = len(values) - len(stretches)
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in stretches)
    return Noise(math.sqrt(squares / degrees), degrees)


def _large(values: Sequence[float], begins: list[int], least: float) -> list[int]:
    """Without the changes whose intervals end below `least`, the smallest first."""
    while begins:
        about, stretches = _about(values, begins), _stretches(values, begins)
        reach = student_t(0.5 + LEVEL / 2, about.degrees) * about.deviation
        most = [
            abs(float(after.mean() - before.mean())) + reach * math.sqrt(1 / before.size + 1 / after.size)
            for before, after in pairwise(stretches)
        ]
        smallest = int(np.argmin(most))
        if most[smallest] >= least:
            break
        begins = [*begins[:smallest], *begins[smallest + 1 :]]
    return begins
