"""Whether steps were still getting faster, or slower, while they were measured; noise alone is no trend.

Mann and Kendall's test on the order of the steps (H. B. Mann, 1945), Theil and Sen's slope for how much. Both look at
every pair of at most BLOCKS stretches, each the median of its steps: one slow step changes nothing.
A load that comes and goes may look like a trend in one process, and hardly in all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from suite.analysis.stats import Values

LEAST = 5  # stretches: of fewer, every order may be chance
BLOCKS = 20
NOTICED = 0.05  # of the time of a step, over the measured region
ALL_AT, ALONE_AT = 0.05, 0.01  # the chance that is accepted of each of several processes, and of a lone one


@dataclass(frozen=True)
class Trend:
    """Of one process."""

    change: float  # of a step's time from the first to the last, relative; below 0: it got faster
    chance: float  # of such an order without a trend


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
    balance = float(np.sign(rises).sum())
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    chance = math.erfc(max(abs(balance) - 1.0, 0.0) / spread / math.sqrt(2))
    slope = _median(rises / (later - earlier))
    return Trend(float(slope * (count - 1) / _median(blocks)), chance)


def _median(values: Values) -> Values:
    """Along the last axis; `np.median` takes ten times as long for so few."""
    ordered, count = np.sort(values), values.shape[-1]
    middle: Values = (ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2
    return middle


@lru_cache
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    earlier, later = np.triu_indices(count, 1)
    return earlier, later


def drifts(trends: Sequence[Trend | None]) -> bool:
    """Whether all processes of a row got noticeably faster, or all slower, beyond chance."""
    accepted = ALL_AT if len(trends) > 1 else ALONE_AT
    ways = {one.change > 0 if one and one.chance < accepted and abs(one.change) > NOTICED else None for one in trends}
    return ways in ({True}, {False})
