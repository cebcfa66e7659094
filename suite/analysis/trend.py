"""Changes over time: steps of a process that get faster or slower, and levels of a series of runs.

`drifts` decides whether steps were still getting faster, or slower, while they were measured; noise alone is no trend.
Mann and Kendall's test on the order of the steps (H. B. Mann, 1945), Theil and Sen's slope for how much. Both look at
every pair of at most BLOCKS stretches, each the median of its steps: one slow step changes nothing. A row's processes
are judged together: their pairs are counted as one (R. M. Hirsch, J. R. Slack, "A nonparametric trend test for seasonal
data with serial dependence", 1984), against the exact distribution, so that even five steps in order count. A load that
comes and goes may look like a trend in one process, and hardly in all of them: so nearly every process must show the
change on its own, too, though with less certainty. tests/suite/test_trend.py shows how often either is mistaken for a
trend, and from how few steps on a trend is found.

`change_points` finds the fewest stretches of equal level that explain a series of values. The best division into two,
three, ... stretches has the smallest sum of squares about the stretches' means, over all ways to divide the series (B.
Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005). The rest about a division's means
is its noise: no other estimate of it has as many degrees of freedom, and a short series has few. A division is taken if
Student's t, looking at every place, would hardly find its changes in a steady series. One value that is far from its
neighbours is an outlier, not a level.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from stagebench.suite.analysis.stats import LEVEL, Values, centre, student_t

LEAST = 5  # stretches: of fewer, every order may be chance
BLOCKS = 20
NOTICED = 0.05  # of the time of a step, over the measured region
ACCEPTED = 0.02  # chance that noise alone makes a trend of a row; five steps of a lone process in order have 1/60
ALIKE_AT = 0.07  # the chance that is accepted of a single process
EXCEPT = 5  # one process in five need not show it
PAIRS = lru_cache(np.triu_indices)  # of stretches: the indices of the earlier, and of the later


@dataclass(frozen=True, slots=True)
class Trend:
    """The trend of the steps of one process."""

    change: float  # of a step's time from the first stretch to the last, relative; below 0: it got faster
    balance: int  # pairs of stretches of which the later is slower, less those of which it is faster
    stretches: int

    @property
    def chance(self) -> float:
        """The chance of such an order without a trend."""
        return together([self])


def trend(step_seconds: Values) -> Trend | None:
    """Return the trend of steps; None of fewer than LEAST."""
    size = -(-step_seconds.size // BLOCKS)
    if step_seconds.size < LEAST:
        return None
    stretches = step_seconds[step_seconds.size % size :].reshape(-1, size)
    blocks = _median(stretches)
    count = blocks.size
    earlier, later = PAIRS(count, 1)
    rises = blocks[later] - blocks[earlier]
    slope = _median(rises / (later - earlier))
    return Trend(float(slope * (count - 1) / _median(blocks)), int(np.sign(rises).sum()), count)


def _median(values: Values) -> Values:
    """Return medians along the last axis; `np.median` takes ten times as long for so few values."""
    ordered, count = np.sort(values), values.shape[-1]
    middle: Values = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return middle


def together(trends: Sequence[Trend]) -> float:
    """Return the chance of a balance as large, either way, in all processes together, without a trend in any."""
    balance = abs(sum(one.balance for one in trends))
    rising = _rising(tuple(sorted(one.stretches for one in trends)))
    least = (rising.size + balance) // 2  # rising pairs of all; equal stretches count half
    return min(1.0, 2 * float(rising[least:].sum()))


@lru_cache(maxsize=1024)
def _rising(stretches: tuple[int, ...]) -> Values:
    """Return the probability of each number of rising pairs in random orders.

    M. G. Kendall, "Rank Correlation Methods", 1948: each further stretch comes, with equal chances, after any number of
    earlier ones that are faster.
    """
    chances: Values = np.ones(1)
    for count in stretches:
        for places in range(2, count + 1):
            chances = np.convolve(chances, np.full(places, 1 / places))
    return chances


def drifts(trends: Sequence[Trend | None]) -> bool:
    """Return True if nearly all processes of a row got noticeably faster, or slower, beyond chance."""
    known = [trend for trend in trends if trend]
    slower = sum(trend.balance for trend in known) > 0
    alike = 0
    for trend in known:
        noticed = abs(trend.change) > NOTICED and trend.chance < ALIKE_AT
        alike += noticed and (trend.change > 0) is (trend.balance > 0) is slower
    return alike > 0 and alike >= len(trends) - len(trends) // EXCEPT and together(known) < ACCEPTED


CHANCE = 0.05  # of a change in a steady series; the longer it is the fewer, since neighbouring places are alike
FAR = 3.0  # deviations of the noise
SHORTEST = 2  # values of a stretch
FEWEST = 2 * SHORTEST + 1  # values in which a change differs from noise
EXACT = 1e-15  # of the sum of squares; what is less is rounding


class Noise(NamedTuple):
    """The noise of single values about their stretch's mean."""

    deviation: float  # standard
    degrees: int  # of freedom


def change_points(values: Sequence[float], least: float = 0.0) -> list[int]:
    """Return where each new stretch begins; a change that is surely smaller than `least` is none."""
    if len(values) < FEWEST:
        return []
    steps = centre(np.diff(values), winsorised=True)
    most = FAR * steps.error * math.sqrt(steps.count / 2)
    # Every value is limited to `most` from the median of itself and its neighbours.
    middle = np.median(sliding_window_view(np.pad(values, 1, mode="reflect"), 3), axis=1)
    begins = _certain(np.clip(values, middle - most, middle + most))
    while begins:  # the smallest change goes, until its interval reaches `least`
        about, stretches = _about(values, begins)
        reach = student_t(0.5 + LEVEL / 2, about.degrees) * about.deviation
        largest = [
            abs(float(after.mean() - before.mean())) + reach * math.sqrt(1 / before.size + 1 / after.size)
            for before, after in pairwise(stretches)
        ]
        smallest = int(np.argmin(largest))
        if largest[smallest] >= least:
            break
        del begins[smallest]
    return begins


def noise(values: Sequence[float]) -> Noise | None:
    """Return the noise about the levels of a series; None of fewer than FEWEST values."""
    return _about(values, change_points(values))[0] if len(values) >= FEWEST else None


def _about(values: Sequence[float], begins: Sequence[int]) -> tuple[Noise, list[Values]]:
    """Return the noise about the means of stretches, and the stretches."""
    stretches = np.split(np.asarray(values, dtype=np.float64), begins)
    degrees = len(values) - len(stretches)
    squares = sum(float(((stretch - stretch.mean()) ** 2).sum()) for stretch in stretches)
    return Noise(math.sqrt(squares / degrees), degrees), stretches


def _certain(values: Values) -> list[int]:
    """Return where the stretches of the likeliest division begin, once changes have paid for their number.

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
    """Yield the best division with 0, 1, ... `most` changes: its sum of squares, and where its changes are."""
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
