"""Who leads a group of rows, without the winner's curse: every pair is compared, at a simultaneous level.

Measured often enough, one of several equal rows always comes out first. So a row leads unless another one is
significantly faster: intervals of all pairs cover together 95 times in 100 (Bonferroni), and several rows may lead.
A pair's scatter from few rounds is itself a guess; no pair may have less than the group's mean, whose degrees of
freedom then count: one pair's for every row but one, fewer where the pairs' scatters differ (F. E. Satterthwaite, "An
approximate distribution of estimates of variance components", 1946). Rows that differ in their noise are still called
different in at most 5 groups of 100 (tests/benchmarks/conclusions.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, log1p, sqrt
from statistics import fmean

from suite.analysis.stats import LEVEL, NO_VERDICT, Centre, Interval, Rates, around, paired, ratio, student_t
from suite.session.end_rule import MOST_PROCESSES

SEVERAL = 5  # rounds from which the noise is known well enough to give up
SURE = 0.99  # the level of a verdict that ends a measurement: it is asked after every round

Group = Mapping[str, Mapping[int, float]]  # samples/s by row and round


@dataclass(frozen=True)
class Against:
    """A row beside the fastest of its group."""

    verdict: str  # "leads", "shares the lead", "slower"; "no verdict: ..." of fewer than two common rounds
    leaders: tuple[str, ...]  # ids, the fastest first
    fastest: str  # id of the row compared with: the fastest, or the fastest of those that are faster for certain
    ratio: Interval  # to that row's speed, all pairs of the group together at 95 %; 1 for that row itself

    @property
    def leads(self) -> bool:
        """Alone or with others."""
        return self.verdict in ("leads", "shares the lead")


def against_fastest(group: Mapping[str, Rates]) -> dict[str, Against]:
    """By row, of rows that may be compared."""
    pairs = compared({row: rates.by_round for row, rates in group.items()})
    order = sorted(group, key=lambda row: -group[row].value)
    known = {row for pair in pairs for row in pair}
    faster = {row: [other for other in order if _faster(pairs.get((other, row)))] for row in order}
    leaders = tuple(row for row in order if row in known and not faster[row])
    found = {}
    for row in group:
        rivals = [other for other in faster[row] if other in leaders] or faster[row] or leaders or order
        best = rivals[0]
        beside = pairs.get((row, best)) or ratio(group[row], group[best])
        if row == best:
            beside = Interval(1.0, 1.0, 1.0, len(group[row].by_round))
        found[row] = Against(_verdict(row, leaders, row in known), leaders, best, beside)
    return found


def _verdict(row: str, leaders: tuple[str, ...], known: bool) -> str:
    if not known:
        return NO_VERDICT
    if row not in leaders:
        return "slower"
    return "leads" if len(leaders) == 1 else "shares the lead"


def compared(group: Group, level: float = LEVEL) -> dict[tuple[str, str], Interval]:
    """Every pair's ratio of speeds, the first over the second, both ways; pairs without two common rounds are missing.

    The intervals hold together, at that level.
    """
    estimates = {pair: paired(group[pair[0]], group[pair[1]]) for pair in combinations(group, 2)}
    pairs = {pair: found for pair, found in estimates.items() if found is not None}
    if not pairs:
        return {}
    rows, every = len({row for pair in pairs for row in pair}), list(pairs.values())
    ways = max(map(len, every))  # in which ratios are estimated: plain, Winsorised
    each = 1 - (1 - level) / len(pairs) / ways
    halves = [_half_widths([found[min(way, len(found) - 1)] for found in every], rows, each) for way in range(ways)]
    intervals = {}
    for (one, other), found, *reach in zip(pairs, every, *halves, strict=True):
        half, way = min((half, way) for way, half in enumerate(reach[: len(found)]))
        value, count = found[way].value, found[way].count
        intervals[one, other] = around(exp(value), half, count)
        intervals[other, one] = around(exp(-value), half, count)
    return intervals


def _half_widths(pairs: Sequence[Centre], rows: int, level: float) -> list[float]:
    """Of the intervals of all pairs of so many rows, each at that level; on logarithms."""
    variances = [found.error**2 * found.count for found in pairs]
    usual, degrees = fmean(variances), min(found.degrees for found in pairs)
    squares = fmean(each**2 for each in variances) / (1 + 2 / degrees)  # a sample's is so much larger than the true one
    alike = min(usual**2 / squares, 1.0) if squares else 1.0
    reach = student_t((1 + level) / 2, (rows - 1) * degrees * alike)
    return [reach * max(found.error, sqrt(usual / found.count)) for found in pairs]


def open_questions(group: Group, threshold: float) -> set[str]:
    """Rows of a group that another round would tell more about. Rows need not have a rate yet.

    Both sides of every comparison with the fastest that is neither a difference for SURE nor a tie within the
    `threshold`, a half-width (0.03: 3 %); a row alone by its own interval. What is a difference at 95 % and none for
    sure is measured on: to stop there doubles the false verdicts. What would be open after MOST_PROCESSES even if the
    noise were half as large as it seems is given up.
    """
    begun = {row: Rates(rates) for row, rates in group.items() if rates}
    waiting = group.keys() - begun.keys()
    if len(group) == 1 and begun:
        return {row for row, rates in begun.items() if _open(rates.interval.scaled(1 / rates.value), threshold)}
    sure = compared(group, SURE)
    for row, found in against_fastest(begun).items():
        decided = sure.get((row, found.fastest), found.ratio).verdict == "slower"
        unclear = not found.leads or _open(found.ratio, threshold)
        if row != found.fastest and not decided and unclear and not _hopeless(found.ratio, threshold):
            waiting |= {row, found.fastest}
    return waiting


def _faster(found: Interval | None) -> bool:
    return found is not None and found.low > 1.0


def _open(found: Interval, threshold: float) -> bool:
    """Whether it is too wide, and may yet become narrow."""
    wide = found.processes < 2 or found.high / found.value - 1 > threshold
    return wide and not _hopeless(found, threshold)


def _hopeless(found: Interval, threshold: float) -> bool:
    """Whether MOST_PROCESSES will neither show a difference as large as it looks, nor a tie."""
    expected = log(found.high / found.value) * sqrt(found.processes / MOST_PROCESSES)
    return found.processes >= SEVERAL and expected / 2 > max(log1p(threshold), abs(log(found.value)))
