"""Whether steps were still getting faster, or slower, while they were measured; noise alone is no trend.

Mann and Kendall's test on the order of the steps (H. B. Mann, 1945), Theil and Sen's slope for how much. Both look at
every pair of at most BLOCKS stretches, each the median of its steps: one slow step changes nothing.

A row's processes are judged together: their pairs are counted as one (R. M. Hirsch, J. R. Slack, "A nonparametric trend
test for seasonal data with serial dependence", 1984), against the exact distribution, so that five steps in order tell
something. A load that comes and goes may look like a trend in one process, and hardly in all of them: so nearly every
process must show the change by itself, too, though with less certainty. tests/suite/test_trend.py has how often either
is mistaken for a trend, and from how few steps on one is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from suite.analysis.stats import Values

LEAST = 5  # stretches: of fewer, every order may be chance
BLOCKS = 20
NOTICED = 0.05  # of the time of a step, over the measured region
ACCEPTED = 0.02  # chance that noise alone makes a trend of a row; five steps of a lone process in order have 1/60
ALIKE_AT = 0.07  # the chance that is accepted of a process by itself
EXCEPT = 5  # one of so many processes need not show it


@dataclass(frozen=True)
class Trend:
    """Of one process."""

    change: float  # of a step's time from the first stretch to the last, relative; below 0: it got faster
    balance: int  # pairs of stretches of which the later is slower, less those of which it is faster
    stretches: int

    @property
    def chance(self) -> float:
        """Of such an order without a trend."""
        return together([self])


def trend(step_seconds: Values) -> Trend | None:
    """None of too few steps."""
    size = -(-step_seconds.size // BLOCKS)
    if step_seconds.size < LEAST:
        return None
    stretches = step_seconds[step_seconds.size % size :].reshape(-1, size)
    blocks = _median(stretches)
    count = blocks.size
    earlier, later = _pairs(count)
    rises = blocks[later] - blocks[earlier]
    slope = _median(rises / (later - earlier))
    return Trend(float(slope * (count - 1) / _median(blocks)), int(np.sign(rises).sum()), count)


def _median(values: Values) -> Values:
    """Along the last axis; `np.median` takes ten times as long for so few."""
    ordered, count = np.sort(values), values.shape[-1]
    middle: Values = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return middle


@lru_cache
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    earlier, later = np.triu_indices(count, 1)
    return earlier, later


def together(trends: Sequence[Trend]) -> float:
    """The chance of a balance as large, either way, in all processes together, without a trend in any."""
    balance = abs(sum(one.balance for one in trends))
    rising = _rising(tuple(sorted(one.stretches for one in trends)))
    least = (rising.size - 1 + balance + 1) // 2  # rising pairs of all; equal stretches count half
    return min(1.0, 2 * float(rising[least:].sum()))


@lru_cache(maxsize=1024)
def _rising(stretches: tuple[int, ...]) -> Values:
    """The probabilities that so many pairs rise, of random orders: M. G. Kendall, "Rank Correlation Methods", 1948.

    Each further stretch comes, with equal chances, after any number of those before it that are faster.
    """
    found: Values = np.ones(1)
    for places in (place for count in stretches for place in range(2, count + 1)):
        found = np.convolve(found, np.full(places, 1 / places))
    return found


def drifts(trends: Sequence[Trend | None]) -> bool:
    """Whether the processes of a row got noticeably faster, or slower, beyond chance: nearly all of them."""
    known = [one for one in trends if one]
    slower = sum(one.balance for one in known) > 0
    alike = [
        one
        for one in known
        if abs(one.change) > NOTICED and (one.change > 0) is (one.balance > 0) is slower and one.chance < ALIKE_AT
    ]
    return bool(alike) and len(alike) >= len(trends) - len(trends) // EXCEPT and together(known) < ACCEPTED
