"""Repeated measurements of a speed: a mean, an interval, a ratio.

Steps within a process resemble each other more than steps of different processes (memory layout, core placement,
clocks), so a process is the unit, on logarithms, since speeds are positive: a speed is the geometric mean over
processes, and its interval is Student's t. A ratio comes from the rounds that both sides were measured in: drift that
lasts longer than a round cancels. Sides that were measured at different times have hardly any common round; their ratio
is that of independent measurements, whose interval has the scatter of both. So the order of rows, their ratios and the
printed speeds are one estimator: of rows of equal rounds, the ratio is the quotient of the speeds.
tests/validation/conclusions.py shows the coverage of the intervals.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
LOOKED = 0.975  # holds 95 % where a row is measured until its own interval is narrow (simulated)
DRAWN_IN = 5  # one value in five, at each end of a Winsorised mean
WIDEST = 100.0  # half-width of a logarithm: two processes with nothing in common would overflow
BATCHES = 10  # of a lone process's steps: neighbours resemble each other, means of many hardly do

UNTOLD = 10  # times the low end of an interval: with a higher end it is not worth printing
LARGEST_ERROR = 0.3  # of a figure that is printed; beyond it, it is not determined
NO_VERDICT = "no verdict: fewer than two processes to compare"

Values = NDArray[np.float64]
Round = Hashable  # what a measurement shares with the other cases measured in the same round, and with nothing else


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its 95 % interval; with one process it holds only the steps' noise."""

    value: float
    low: float
    high: float
    # Of a ratio: rounds that both sides were measured in; without such, processes of the side with fewer.
    processes: int

    def scaled(self, factor: float) -> "Interval":
        """Return the interval of `factor` times the quantity; the factor is positive."""
        return Interval(self.value * factor, self.low * factor, self.high * factor, self.processes)

    @property
    def scatters(self) -> bool:
        """True if the scatter of the value is known; it is not of a single value that was imported."""
        return self.low < self.high

    @property
    def tells(self) -> bool:
        """True if its ends, above zero, are worth printing."""
        return self.high <= UNTOLD * self.low

    @property
    def verdict(self) -> str:
        """The verdict on a ratio of speeds: "faster", "slower" or "no detectable difference"; none of one process."""
        if self.processes < 2:
            return NO_VERDICT
        if self.low > 1.0:
            return "faster"
        return "slower" if self.high < 1.0 else "no detectable difference"


@dataclass(frozen=True, order=True)
class Centre:
    """The mean of several values, and its standard error."""

    value: float
    error: float
    count: int
    degrees: float  # of freedom

    def half_width(self, level: float = LEVEL) -> float:
        """Return half of the confidence interval."""
        return student_t(0.5 + level / 2, self.degrees) * self.error

    @property
    def chance(self) -> float:
        """The probability that noise alone takes the value so far from 0 (two-sided)."""
        from scipy.special import stdtr

        return 2 * float(stdtr(self.degrees, -abs(self.value) / self.error)) if self.error else float(not self.value)


@dataclass(frozen=True)
class Rates:
    """Samples/s of a row's processes, by the round that each ran in; at least one."""

    by_round: Mapping[Round, float]
    steps: Values | None = None  # seconds of every step of the only process
    first_look: int | None = None  # processes after which more were measured if need be; None: a fixed number

    @cached_property
    def logarithms(self) -> Values:
        values: Values = np.log(list(self.by_round.values()))
        return values

    @cached_property
    def value(self) -> float:
        """The geometric mean over processes."""
        rates = list(self.by_round.values())
        return rates[0] if len(rates) == 1 else math.exp(fmean(self.logarithms))

    @cached_property
    def interval(self) -> Interval:
        """The value and its 95 % interval; if the scatter itself decided when to stop, at the level LOOKED."""
        count, half = len(self.by_round), 0.0
        if count > 1:
            half = centre(self.logarithms).half_width(LOOKED if self.first_look else LEVEL)
        elif self.steps is not None and self.steps.size > 1:
            size = -(-self.steps.size // BATCHES)
            batches = self.steps[self.steps.size % size :].reshape(-1, size).mean(axis=1)
            half = centre(np.log(batches)).half_width()
        return around(self.value, half, count)


def rates_of(steps: Mapping[Round, Values], samples_per_step: float) -> Rates | None:
    """Return rates from the seconds of every step, by round; None without any."""
    by_round = {at: samples_per_step / float(seconds.mean()) for at, seconds in steps.items()}
    return Rates(by_round, *(steps.values() if len(steps) == 1 else ())) if steps else None


def ratio(ours: Rates, theirs: Rates, level: float = LEVEL) -> Interval:
    """Return how many times faster `ours` is than `theirs`: from common rounds, or as two independent measurements.

    If either has fewer than two processes it is the quotient of the speeds, without a verdict. It is
    wider if the scatter itself decided when to stop, as a row's own interval is.
    """
    level = (1 + level) / 2 if ours.first_look or theirs.first_look else level
    logarithm = paired(ours.by_round, theirs.by_round) or independent(ours, theirs)
    if logarithm is not None:
        return around(math.exp(logarithm.value), logarithm.half_width(level), logarithm.count)
    half = math.hypot(*(math.log(rates.interval.high / rates.value) for rates in (ours, theirs)))
    return around(ours.value / theirs.value, half, len(ours.by_round.keys() & theirs.by_round.keys()))


def together(ours: Collection[Round], theirs: Collection[Round]) -> bool:
    """Return True if two were measured in the same rounds: at least half of the rounds of the one that has fewer."""
    return 2 * len(set(ours).intersection(theirs)) >= min(len(ours), len(theirs))


def paired(ours: Mapping[Round, float], theirs: Mapping[Round, float]) -> Centre | None:
    """Return the logarithm of the ratio over common rounds; None of fewer than two, or of hardly any."""
    rounds = [at for at in ours if at in theirs]
    if len(rounds) < 2 or not together(ours, theirs):
        return None
    return centre(np.log([ours[at] / theirs[at] for at in rounds]))


def independent(ours: Rates, theirs: Rates) -> Centre | None:
    """Return the logarithm of the ratio of two that were measured at different times; None of fewer than two processes.

    B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
    1947: the two need not scatter alike.
    """
    if min(len(ours.by_round), len(theirs.by_round)) < 2:
        return None
    one, other = centre(ours.logarithms), centre(theirs.logarithms)
    error = math.hypot(one.error, other.error)
    parts = one.error**4 / one.degrees + other.error**4 / other.degrees
    degrees = error**4 / parts if parts else one.degrees + other.degrees
    return Centre(one.value - other.value, error, min(one.count, other.count), degrees)


def around(value: float, half: float, processes: int) -> Interval:
    """Return the interval whose logarithm reaches `half` to each side."""
    factor = math.exp(min(half, WIDEST))
    return Interval(value, value / factor, value * factor, processes)


def centre(values: Sequence[float] | Values, winsorised: bool = False) -> Centre:
    """Return the mean of two or more values.

    `winsorised`: from five values on, the fifth at each end is replaced by its neighbour, against single values that a
    load hit. Student's t then has the degrees of freedom of the h values in between, its error stretched by (n - 1) /
    (h - 1) (W. J. Dixon, J. W. Tukey, "Approximate behavior of the distribution of Winsorized t", 1968).
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = ordered.size
    drawn = winsorised * (count // DRAWN_IN)
    near = ordered.clip(ordered[drawn], ordered[count - drawn - 1])
    stretch = (count - 1) / (count - 2 * drawn - 1)
    error = float(near.std(ddof=1)) / math.sqrt(count) * stretch
    return Centre(float(near.mean()), error, count, count - 2 * drawn - 1)


@lru_cache(maxsize=4096)
def student_t(probability: float, degrees: float) -> float:
    """Return a quantile of Student's t."""
    from scipy.special import stdtrit  # its import takes half a second, which commands without intervals save

    return float(stdtrit(degrees, probability))


def determined(share: float, error: float | None) -> float | None:
    """Return a share from 0 to 1; None if its error leaves it open, or if it lies outside in spite of it.

    A share that lies outside within its error is limited to 0 or 1. `error` is the interval's half-width, if known.
    """
    reach = error or 0.0
    return min(max(share, 0.0), 1.0) if reach <= LARGEST_ERROR and -reach <= share <= 1.0 + reach else None


def outliers(values: Sequence[float] | Values) -> NDArray[np.bool_]:
    """Return which values lie more than three interquartile ranges beyond the quartiles ("far out", Tukey 1977).

    Outliers are shown, never dropped.
    """
    array = np.asarray(values, dtype=np.float64)
    first, third = np.percentile(array, [25, 75])
    reach = 3.0 * (third - first)
    found: NDArray[np.bool_] = (array < first - reach) | (array > third + reach)
    return found


@dataclass(frozen=True)
class Spread:
    """The median of several trainings, and their least and greatest value."""

    value: float
    low: float
    high: float
    of: int  # trainings

    def overlaps(self, other: "Spread") -> bool:
        """Return True if the two ranges overlap: trainings then differ as much among themselves."""
        return self.low <= other.high and other.low <= self.high


def spread(values: Sequence[float | None]) -> Spread | None:
    """Return the spread of the known values; None without any."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None
