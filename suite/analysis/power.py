"""How many processes a comparison of two runs wants, before a change of a given size shows.

The noise is itself a guess from few processes; its upper confidence limit is used, or every other plan would fall short
(R. H. Browne, "On the use of a pilot sample for sample size determination", 1995).
"""

import math
from collections.abc import Sequence

from suite.analysis.change_points import Noise
from suite.analysis.stats import DRAWN_IN, LEVEL, Centre, Rates, Values, centre, student_t, ways

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
