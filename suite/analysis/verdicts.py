"""Faster, slower or no detectable difference: what two measurements without common rounds say, over several cases.

Each case's processes are compared by Welch's test. Over all cases together a wrong "faster" or "slower" comes up in at
most 5 comparisons of 100 (S. Holm, "A simple sequentially rejective multiple test procedure", 1979); an interval has
the level at which its verdict was reached. A change that is certainly smaller than the threshold is none.

Processes of one run resemble each other more than runs of different days. Where it is known how much a case's runs
differ, that is its noise, unless its processes scatter more.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from suite.analysis.change_points import Noise
from suite.analysis.power import processes_needed, processes_noise
from suite.analysis.stats import LEVEL, Centre, Interval, Rates, around, independent, student_t

FASTER, SLOWER, SAME = "faster", "slower", "no detectable difference"

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Sides:
    """A case's speeds before and after, of two processes or more each, and how much its runs differ, where known."""

    before: Rates
    after: Rates
    runs: Noise | None = None


@dataclass(frozen=True)
class Judged:
    """What is made of them."""

    verdict: str
    ratio: Interval  # of the speeds, after over before
    needs: int | None  # processes of each run that would show a change as large as the threshold; None: no number would

    @property
    def resolution(self) -> float:
        """The smallest relative slow-down that would have shown."""
        return self.ratio.value / self.ratio.low - 1


def judged(cases: Mapping[Name, Sides], threshold: float) -> dict[Name, Judged]:
    """All cases of a comparison together; `threshold` is the smallest relative change that matters (0.03: 3 %)."""
    centres = {name: _centre(sides) for name, sides in cases.items()}
    levels = _levels(centres)
    return {name: _judged(cases[name], centre, levels[name], threshold, len(cases)) for name, centre in centres.items()}


def _centre(sides: Sides) -> Centre:
    """The logarithm of the ratio, and the larger one of its two errors: by the processes, and by the runs."""
    centre = independent(sides.after, sides.before)
    assert centre
    if sides.runs is None:
        return centre
    runs = Centre(centre.value, sides.runs.deviation * math.sqrt(2), centre.count, sides.runs.degrees)
    return max(centre, runs, key=Centre.half_width)


def _levels(centres: Mapping[Name, Centre]) -> dict[Name, float]:
    """Of each one's interval, such that it excludes 0 where Holm's procedure finds a difference."""
    levels, left, rejecting = {}, len(centres), True
    for name in sorted(centres, key=lambda each: centres[each].chance):
        levels[name] = 1 - (1 - LEVEL) / left
        rejecting = rejecting and centres[name].chance <= (1 - LEVEL) / left
        left -= rejecting  # once one shows no difference, none after it does
    return levels


def _judged(sides: Sides, centre: Centre, level: float, threshold: float, cases: int) -> Judged:
    ratio = around(math.exp(centre.value), centre.half_width(level), centre.count)
    negligible = 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold
    noise = processes_noise(sides.before, sides.after)
    hopeless = noise is None or (sides.runs is not None and _reach(sides.runs) > threshold)
    needs = None if noise is None or hopeless else processes_needed(noise, threshold, cases)
    return Judged(SAME if negligible else ratio.verdict, ratio, needs)


def _reach(runs: Noise) -> float:
    """How far two runs differ by noise alone, whatever processes they have."""
    return student_t(0.5 + LEVEL / 2, runs.degrees) * runs.deviation * math.sqrt(2)
