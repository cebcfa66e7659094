"""Faster, slower or no detectable difference: the verdicts on two measurements without common rounds, case by case.

Each case's processes are compared by Welch's test. Over all cases together a wrong "faster" or "slower" comes up in at
most 5 comparisons of 100 (S. Holm, "A simple sequentially rejective multiple test procedure", 1979); an interval has
the level at which its verdict was reached. A change that is certainly smaller than the threshold is none.

Processes of one run resemble each other more than runs of different days. If it is known how much a case's runs differ,
that is its noise, unless its processes scatter more.

The number of processes that a comparison needs follows from the noise, which is itself a guess from few processes: its
upper confidence limit is used, or every other plan would fall short (R. H. Browne, "On the use of a pilot sample for
sample size determination", 1995).
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from suite.analysis.stats import LEVEL, Centre, Interval, Rates, around, centre, independent, student_t
from suite.analysis.trend import Noise

SMALL = 0.03  # the default for the smallest change that matters
POWER = 0.95  # of finding the change, were the noise known; other uncertainty takes a few in a hundred
CAREFUL = 0.85  # confidence that the noise is no larger
MOST = 1000  # processes: a case that needs more cannot be measured

FASTER, SLOWER, SAME = "faster", "slower", "no detectable difference"

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Sides:
    """A case's speeds before and after, of two processes or more each."""

    before: Rates
    after: Rates
    runs: Noise | None = None  # how much its runs differ, if known


@dataclass(frozen=True)
class Judged:
    """The verdict on a case."""

    verdict: str
    ratio: Interval  # of the speeds, after over before
    needs: int | None  # processes of each run that would show a change as large as the threshold; None: no number would

    @property
    def resolution(self) -> float:
        """The smallest relative slow-down that would have shown."""
        return self.ratio.value / self.ratio.low - 1


def judged(cases: Mapping[Name, Sides], threshold: float) -> dict[Name, Judged]:
    """Judge all cases of a comparison; `threshold` is the smallest relative change that matters (0.03: 3 %)."""
    logarithms = {name: _logarithm(sides) for name, sides in cases.items()}
    verdicts: dict[Name, Judged] = {}
    left, rejecting = len(cases), True
    for name in sorted(cases, key=lambda name: logarithms[name].chance):
        logarithm, sides = logarithms[name], cases[name]
        # Holm's level: the interval excludes 0 if the procedure finds a difference. After the first case without one,
        # no further case has one.
        level = 1 - (1 - LEVEL) / left
        rejecting = rejecting and logarithm.chance <= 1 - level
        left -= rejecting
        ratio = around(math.exp(logarithm.value), logarithm.half_width(level), logarithm.count)
        negligible = 1 / (1 + threshold) < ratio.low and ratio.high < 1 + threshold
        noise, needs = processes_noise(sides.before, sides.after), None
        if noise and not (sides.runs and _reach(sides.runs) > threshold):
            needs = processes_needed(noise, threshold, len(cases))
        verdicts[name] = Judged(SAME if negligible else ratio.verdict, ratio, needs)
    return {name: verdicts[name] for name in cases}


def _logarithm(sides: Sides) -> Centre:
    """Return the logarithm of the ratio with the scatter of processes or of runs, whichever is larger."""
    processes = independent(sides.after, sides.before)
    assert processes
    if sides.runs is None:
        return processes
    error = sides.runs.deviation * math.sqrt(2)
    runs = Centre(processes.value, error, processes.count, sides.runs.degrees)
    return max(processes, runs, key=Centre.half_width)


def _reach(runs: Noise) -> float:
    """Return how far two runs differ by noise alone, however many processes they have."""
    return student_t(0.5 + LEVEL / 2, runs.degrees) * runs.deviation * math.sqrt(2)


def processes_noise(*sides: Rates) -> Noise | None:
    """Return the noise of single processes about their run's mean, on logarithms; None if no run has two."""
    centres = [centre(rates.logarithms) for rates in sides if len(rates.by_round) > 1]
    if not centres:
        return None
    degrees = sum(int(each.degrees) for each in centres)
    squares = sum(each.error**2 * each.count * each.degrees for each in centres)
    return Noise(math.sqrt(squares / degrees), degrees)


def processes_needed(noise: Noise, change: float, cases: int = 1) -> int | None:
    """Return the processes of each of two runs that show a relative `change` (0.03: 3 %) of one of `cases` cases.

    None: more than MOST.
    """
    from scipy.special import chdtri

    deviation = noise.deviation * math.sqrt(noise.degrees / float(chdtri(noise.degrees, CAREFUL)))
    share = 1 - (1 - LEVEL) / 2 / cases
    for count in range(2, MOST + 1):
        degrees = 2 * (count - 1)
        reach = student_t(share, degrees) + student_t(POWER, degrees)
        if reach * deviation * math.sqrt(2 / count) <= math.log1p(change):
            return count
    return None
