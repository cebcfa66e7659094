"""How many processes a comparison of two runs wants, before a change of a given size shows.

The noise is itself a guess from few processes; its upper confidence limit is used, or every other plan would fall short
(R. H. Browne, "On the use of a pilot sample for sample size determination", 1995).

Faster, slower or no detectable difference: what two measurements without common rounds say, over several cases.

Each case's processes are compared by Welch's test, plain and Winsorised. Over all cases together a wrong "faster" or
"slower" comes up in at most 5 comparisons of 100 (S. Holm, "A simple sequentially rejective multiple test procedure",
1979); an interval has the level at which its verdict was reached. A change that is certainly smaller than the threshold
is none.

Processes of one run resemble each other more than runs of different days. Where it is known how much a case's runs
differ, that is its noise, unless its processes scatter more.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from suite.analysis.stats import (
    DRAWN_IN,
    LEVEL,
    Centre,
    Interval,
    Rates,
    Values,
    around,
    centre,
    independent,
    student_t,
    ways,
)
from suite.analysis.trend import Noise

SMALL = 0.03  # a change that matters, where nobody says otherwise
POWER = 0.95  # of finding the change, were the noise known; what else is uncertain takes a few of a hundred
CAREFUL = 0.85  # confidence that the noise is no larger
MOST = 1000  # processes of a case that anybody would measure


def processes_noise(*sides: Rates) -> Noise | None:
    """Of single processes about their run's mean, on logarithms; None where no run has two.

    Plain or Winsorised, as the comparison takes whichever interval is narrower.
    """
    several = [_logarithms(one) for one in sides if len(one.by_round) > 1]
    found = [_pooled([centre(each, share) for each in several]) for share in (0, 1) if several]
    return min(found, key=lambda one: one.deviation * student_t(0.5 + LEVEL / 2, one.degrees), default=None)


def _pooled(several: Sequence[Centre]) -> Noise:
    degrees = sum(int(one.degrees) for one in several)
    squares = sum(one.error**2 * one.count * one.degrees for one in several)
    return Noise(math.sqrt(squares / degrees), degrees)


def processes_needed(noise: Noise, change: float, cases: int = 1) -> int | None:
    """Of each of two runs, to see a relative `change` (0.03: 3 %) of one of so many cases; None: more than MOST."""
    from scipy.special import chdtri

    deviation = noise.deviation * math.sqrt(noise.degrees / float(chdtri(noise.degrees, CAREFUL)))
    for count in range(2, MOST + 1):
        share = 1 - (1 - LEVEL) / 2 / cases / len(ways(count))
        degrees = 2 * (count - 2 * (count // DRAWN_IN) - 1)
        reach = student_t(share, degrees) + student_t(POWER, degrees)
        if reach * deviation * math.sqrt(2 / count) <= math.log1p(change):
            return count
    return None


def _logarithms(rates: Rates) -> Values:
    import numpy as np

    return np.log(list(rates.by_round.values()))


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


class Evidence(NamedTuple):
    """The logarithm of a ratio, the narrower one of as many as were looked at: all hold together (Bonferroni)."""

    centre: Centre
    ways: int = 1

    @property
    def chance(self) -> float:
        return min(1.0, self.ways * self.centre.chance)

    def half_width(self, level: float = LEVEL) -> float:
        return self.centre.half_width(1 - (1 - level) / self.ways)


def judged(cases: Mapping[Name, Sides], threshold: float) -> dict[Name, Judged]:
    """All cases of a comparison together; `threshold` is the smallest relative change that matters (0.03: 3 %)."""
    found = {name: _evidence(sides) for name, sides in cases.items()}
    levels = _levels(found)
    return {name: _judged(cases[name], each, levels[name], threshold, len(cases)) for name, each in found.items()}


def _evidence(sides: Sides) -> Evidence:
    """By the processes or by the runs, whichever scatter more."""
    centres = independent(sides.after, sides.before)
    assert centres
    processes = Evidence(min(centres, key=Centre.half_width), len(centres))
    if sides.runs is None:
        return processes
    of = processes.centre
    runs = Evidence(Centre(of.value, sides.runs.deviation * math.sqrt(2), of.count, sides.runs.degrees))
    return max(processes, runs, key=Evidence.half_width)


def _levels(found: Mapping[Name, Evidence]) -> dict[Name, float]:
    """Of each one's interval, such that it excludes 0 where Holm's procedure finds a difference."""
    levels, left, rejecting = {}, len(found), True
    for name in sorted(found, key=lambda each: found[each].chance):
        levels[name] = 1 - (1 - LEVEL) / left
        rejecting = rejecting and found[name].chance <= (1 - LEVEL) / left
        left -= rejecting  # once one shows no difference, none after it does
    return levels


def _judged(sides: Sides, found: Evidence, level: float, threshold: float, cases: int) -> Judged:
    ratio = around(math.exp(found.centre.value), found.half_width(level), found.centre.count)
    negligible = 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold
    noise = processes_noise(sides.before, sides.after)
    hopeless = noise is None or (sides.runs is not None and _reach(sides.runs) > threshold)
    needs = None if noise is None or hopeless else processes_needed(noise, threshold, cases)
    return Judged(SAME if negligible else ratio.verdict, ratio, needs)


def _reach(runs: Noise) -> float:
    """How far two runs differ by noise alone, whatever processes they have."""
    return student_t(0.5 + LEVEL / 2, runs.degrees) * runs.deviation * math.sqrt(2)
