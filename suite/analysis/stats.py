"""What repeated measurements say of a speed: a median, an interval, a ratio.

Steps within a process resemble each other more than steps of different processes (memory layout, core placement,
clocks), so a process is the unit, on logarithms, since speeds are positive. A ratio comes from the rounds that both
sides were measured in: drift that lasts longer than a round cancels. Sides that were measured at different times have
hardly any; theirs is that of independent measurements, whose interval has the scatter of both.

A load that comes and goes hits single processes. Their scatter is therefore Winsorised: from five values on, the
fifth at each end is drawn in to its neighbour. Student's t then has the degrees of freedom of the values in between,
its error stretched by (n - 1) / (h - 1) (W. J. Dixon, J. W. Tukey, "Approximate behavior of the distribution of
Winsorized t", 1968). That is dear where nothing came and went: of five values it leaves two degrees of freedom. A ratio
is therefore estimated both ways, plain and Winsorised, each at half the chance of error, so that both intervals hold
together (Bonferroni); the narrower one is given. tests/validation/conclusions.py shows what the intervals cover.

Several trainings of one case: the median and its ends.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
DRAWN_IN = 5  # one of so many values, at each end
WIDEST = 100.0  # of a logarithm's half-width: what two processes that have nothing in common would overflow
BATCHES = 10  # of a lone process's steps: neighbours resemble each other, means of many hardly do

UNTOLD = 10  # times the low end of an interval: with a higher end it says nothing
LARGEST_ERROR = 0.3  # of a figure that is printed; beyond it, it is not determined
NO_VERDICT = "no verdict: fewer than two processes to compare"

Values = NDArray[np.float64]
Round = Hashable  # what a measurement's other cases were measured in as well: equal for them, and for nothing else


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its 95 % interval; with one process it knows the steps' noise only."""

    value: float
    low: float
    high: float
    processes: (
        int  # of a ratio: rounds that both sides were measured in; without such, processes of the side with fewer
    )

    def scaled(self, factor: float) -> "Interval":
        """The interval of `factor` times the quantity; the factor is positive."""
        return Interval(self.value * factor, self.low * factor, self.high * factor, self.processes)

    @property
    def scatters(self) -> bool:
        """Whether anything shows how far the value scatters; nothing does of a single value that was imported."""
        return self.low < self.high

    @property
    def tells(self) -> bool:
        """Whether its ends, above zero, say anything; a reader is not given those of one that does not."""
        return self.high <= UNTOLD * self.low

    @property
    def verdict(self) -> str:
        """Of a ratio of speeds: "faster", "slower" or "no detectable difference"; none of fewer than two processes."""
        if self.processes < 2:
            return NO_VERDICT
        if self.low > 1.0:
            return "faster"
        return "slower" if self.high < 1.0 else "no detectable difference"


@dataclass(frozen=True, order=True)
class Centre:
    """Where several values lie: their mean, plain or Winsorised, and its standard error."""

    value: float
    error: float
    count: int
    degrees: float  # of freedom

    def half_width(self, level: float = LEVEL) -> float:
        """Of the confidence interval."""
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
    steps: Values | None = None  # seconds of every step of the only process, for want of others
    first_look: int | None = None  # processes after which more were measured if need be; None: a fixed number

    @cached_property
    def value(self) -> float:
        """The median over processes."""
        return median(self.by_round.values())

    @cached_property
    def interval(self) -> Interval:
        """The median and its 95 % interval."""
        return around(self.value, self._half_width(), len(self.by_round))

    def _half_width(self) -> float:
        """On logarithms."""
        count = len(self.by_round)
        if count > 1:
            found = centre(np.log(list(self.by_round.values())))
            # A median of few normal values scatters that much more than their mean.
            return math.sqrt(math.pi * count / (2 * count + math.pi - 2)) * found.half_width()
        if self.steps is None or self.steps.size < 2:
            return 0.0
        size = -(-self.steps.size // BATCHES)
        batches = self.steps[self.steps.size % size :].reshape(-1, size).mean(axis=1)
        return centre(np.log(batches)).half_width()


def rates_of(steps: Mapping[Round, Values], samples_per_step: float) -> Rates | None:
    """From the seconds of every step, by round; None without any."""
    by_round = {one: samples_per_step / float(seconds.mean()) for one, seconds in steps.items()}
    return Rates(by_round, *(steps.values() if len(steps) == 1 else ())) if steps else None


def ratio(ours: Rates, theirs: Rates, level: float = LEVEL) -> Interval:
    """How many times faster `ours` is than `theirs`: from common rounds, or as two independent measurements.

    Where either has fewer than two processes it is the quotient of the medians, without a verdict.
    """
    found = paired(ours.by_round, theirs.by_round) or independent(ours, theirs)
    if found is not None:
        each = 1 - (1 - level) / len(found)
        half, narrower = min((one.half_width(each), one) for one in found)
        return around(math.exp(narrower.value), half, narrower.count)
    half = math.hypot(*(math.log(one.interval.high / one.value) for one in (ours, theirs)))
    return around(ours.value / theirs.value, half, len(ours.by_round.keys() & theirs.by_round.keys()))


def together(ours: Collection[Round], theirs: Collection[Round]) -> bool:
    """Whether two were measured in the same rounds: at least half of those of the one that has fewer."""
    return 2 * len(set(ours).intersection(theirs)) >= min(len(ours), len(theirs))


def paired(ours: Mapping[Round, float], theirs: Mapping[Round, float]) -> tuple[Centre, ...] | None:
    """The logarithm of the ratio, over the rounds that both have; None of fewer than two, or of hardly any.

    Plain, and from DRAWN_IN rounds on Winsorised too.
    """
    rounds = [one for one in ours if one in theirs]
    if len(rounds) < 2 or not together(ours, theirs):
        return None
    logarithms = np.log([ours[one] / theirs[one] for one in rounds])
    return tuple(centre(logarithms, share) for share in ways(len(rounds)))


def independent(ours: Rates, theirs: Rates) -> tuple[Centre, ...] | None:
    """The same of two that were measured at different times; None with fewer than two processes of either.

    B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
    1947: the two need not scatter alike.
    """
    counts = [len(rates.by_round) for rates in (ours, theirs)]
    return tuple(_welch(ours, theirs, share) for share in ways(min(counts))) if min(counts) > 1 else None


def _welch(ours: Rates, theirs: Rates, share: int) -> Centre:
    one, other = (centre(np.log(list(rates.by_round.values())), share) for rates in (ours, theirs))
    error = math.hypot(one.error, other.error)
    parts = sum(each.error**4 / each.degrees for each in (one, other))
    degrees = error**4 / parts if parts else one.degrees + other.degrees
    return Centre(one.value - other.value, error, min(one.count, other.count), degrees)


def ways(count: int) -> tuple[int, ...]:
    """The shares that `centre` is asked for, of so many values."""
    return (0, 1) if count >= DRAWN_IN else (0,)


def around(value: float, half: float, processes: int) -> Interval:
    """The interval whose logarithm reaches `half` to each side."""
    factor = math.exp(min(half, WIDEST))
    return Interval(value, value / factor, value * factor, processes)


def centre(values: Sequence[float] | Values, share: int = 1) -> Centre:
    """Of two values or more; with a `share` of 0 none is drawn in."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = ordered.size
    drawn = share * (count // DRAWN_IN)
    near = ordered.clip(ordered[drawn], ordered[count - drawn - 1])
    stretch = (count - 1) / (count - 2 * drawn - 1)
    error = float(near.std(ddof=1)) / math.sqrt(count) * stretch
    return Centre(float(near.mean()), error, count, count - 2 * drawn - 1)


@lru_cache(maxsize=4096)
def student_t(probability: float, degrees: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit  # takes half a second, which commands that print no interval need not wait

    return float(stdtrit(degrees, probability))


def determined(share: float, error: float | None) -> float | None:
    """A share, which can be from 0 to 1; None where its error leaves it open, or where it lies outside all the same.

    One that lies outside within its error is the nearest that can be. `error` is the interval's half-width; None where
    it is not known.
    """
    reach = error or 0.0
    return min(max(share, 0.0), 1.0) if reach <= LARGEST_ERROR and -reach <= share <= 1.0 + reach else None


def outliers(values: Sequence[float] | Values) -> NDArray[np.bool_]:
    """Which values lie more than three interquartile ranges beyond the quartiles ("far out", Tukey 1977).

    To be shown, never to be dropped.
    """
    array = np.asarray(values, dtype=np.float64)
    first, third = np.percentile(array, [25, 75])
    reach = 3.0 * (third - first)
    found: NDArray[np.bool_] = (array < first - reach) | (array > third + reach)
    return found


@dataclass(frozen=True)
class Spread:
    """The median of several trainings, and their ends."""

    value: float
    low: float
    high: float
    of: int  # how many

    def overlaps(self, other: "Spread") -> bool:
        """Whether their ends leave no gap between the two: trainings differ as much among themselves."""
        return self.low <= other.high and other.low <= self.high


def spread(values: Sequence[float | None]) -> Spread | None:
    """Of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return Spread(median(known), min(known), max(known), len(known)) if known else None
