"""Synchronous ranks wait for the slowest of them: how much longer that one takes, by their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from suite.analysis.stats import Values
from suite.errors import RequestError
from suite.predict.collectives import not_negative

REACH, POINTS = 6.0, 1201  # standard deviations on either side, and the points that stand for a normal distribution


@dataclass(frozen=True, eq=False)
class Jitter:
    """How long an iteration takes on one rank: the values and how probable it is not to exceed each."""

    values: Values  # ascending
    cumulative: Values

    @classmethod
    def measured(cls, seconds: Sequence[float] | Values) -> "Jitter":
        """Of iterations that did not wait for other ranks; beyond as many ranks as iterations it grows no more."""
        return cls(np.sort(np.asarray(seconds, dtype=np.float64)), np.arange(1, len(seconds) + 1) / len(seconds))

    @classmethod
    def normal(cls, deviation: float) -> "Jitter":
        """Normally distributed, with this standard deviation relative to the mean, and never below 0 seconds.

        RequestError below 0 and above 1.
        """
        not_negative("jitter", deviation, "(standard deviation over mean)")
        if deviation > 1:
            raise RequestError(f"the jitter is {deviation}; give the standard deviation over the mean, at most 1")
        points = np.linspace(-REACH, REACH, POINTS)
        middles = points + REACH / (POINTS - 1)  # each value stands for the interval about it
        return cls(np.maximum(1.0 + deviation * points, 0.0), np.array([NormalDist().cdf(one) for one in middles]))

    def stretched(self, factor: float) -> "Jitter":
        """With iterations that are so many times as far from their mean."""
        return Jitter(self._mean + factor * (self.values - self._mean), self.cumulative)

    @cached_property
    def _mean(self) -> float:
        return self._largest(1)

    def slowest(self, ranks: int) -> float:
        """The mean of the slowest of so many independent ranks, over the mean of one."""
        return self._largest(ranks) / self._mean

    def _largest(self, draws: int) -> float:
        return float(np.diff(self.cumulative**draws, prepend=0.0) @ self.values)


EVEN = Jitter.measured([1.0])  # every rank takes the same time
