"""Who leads a group of rows, without the winner's curse: every pair is compared, at a simultaneous level.

Measured often enough, one of several equal rows always comes out first. So a row leads unless another one is
significantly faster: intervals of all pairs cover together 95 times in 100 (Bonferroni), and several rows may lead.

A pair's scatter from few rounds is itself a guess. It is taken in two ways, and the narrower interval is given. In one,
no pair has less than the group's mean, whose degrees of freedom are the pair's own for every row but one, fewer where
pairs differ in their scatter (F. E. Satterthwaite, "An approximate distribution of estimates of variance components",
1946). In the other, a pair has its own scatter alone. Both hold together at half the chance of error each. A row that
scatters far more than the others says nothing of their noise, nor they of its own: its pairs have the latter only. Its
plain scatter tells, since three rounds of five agree by chance too often; and not by one round alone, which a load hit.
So has a pair that was measured at different times, since nothing cancels in it: it is compared as two runs are.

A measurement that goes on until its verdicts are clear looks after every round, and each look is another chance to be
wrong. The looks share the 5 % (K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for clinical trials", 1983):
half is spent when the planned rounds are done, the rest bit by bit, however long it goes on. tests/validation/
conclusions.py shows how often verdicts are false all the same.

Which cases of a run are worth another round: what cannot be told apart yet, nor be called equal.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, log1p, sqrt
from statistics import fmean, median_low

from suite.analysis.comparability import Key, group
from suite.analysis.measured import rate, round_of
from suite.analysis.stats import (
    DRAWN_IN,
    LEVEL,
    NO_VERDICT,
    Centre,
    Interval,
    Rates,
    Round,
    around,
    independent,
    paired,
    ratio,
)
from suite.contracts.case import Case
from suite.results.records import CANCELLED
from suite.results.run_folder import RunFolder
from suite.session.end_rule import MOST_PROCESSES

FAR_NOISIER, FARTHER_APART = 10.0, 2.0  # times the usual row's variance, and the stretch that most rounds lie in
SEVERAL = 5  # rounds from which the noise is known well enough to give up

Group = Mapping[str, Mapping[Round, float]]  # samples/s by row and round
Pair = tuple[str, str]
Estimates = dict[Pair, tuple[Centre, ...]]  # of the logarithm of each pair's ratio: plain, Winsorised


@dataclass(frozen=True)
class Against:
    """A row beside the fastest of its group."""

    verdict: str  # "leads", "shares the lead", "slower"; "no verdict: ..." of fewer than two processes
    leaders: tuple[str, ...]  # ids, the fastest first
    fastest: str  # id of the row compared with: the fastest, or the fastest of those that are faster for certain
    ratio: Interval  # to that row's speed, all pairs of the group together at 95 %; 1 for that row itself

    @property
    def leads(self) -> bool:
        """Alone or with others."""
        return self.verdict in ("leads", "shares the lead")


def against_fastest(group: Mapping[str, Rates]) -> dict[str, Against]:
    """By row, of rows that may be compared."""
    pairs = compared(group)
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


def compared(group: Mapping[str, Rates]) -> dict[Pair, Interval]:
    """Every pair's ratio of speeds, the first over the second, both ways; pairs with a lone process are missing.

    The intervals hold together at LEVEL, and at all looks together, where anybody looked.
    """
    pairs, apart = _estimates(group)
    first_look, chance = _first_look(group.values()), (1 - LEVEL) / max(1, len(pairs) + len(apart))
    intervals = {}
    for (one, other), (centres, ways) in {**_of_rounds(group, pairs), **_alone(apart)}.items():
        level = 1 - chance / ways * _spent(centres[0].count, first_look)
        half, narrowest = min((centre.half_width(level), centre) for centre in centres)
        intervals[one, other] = around(exp(narrowest.value), half, narrowest.count)
        intervals[other, one] = around(exp(-narrowest.value), half, narrowest.count)
    return intervals


def _estimates(group: Mapping[str, Rates]) -> tuple[Estimates, Estimates]:
    """Of the pairs that were measured in common rounds, and of those that were measured at different times."""
    pairs, apart = {}, {}
    for pair in combinations(group, 2):
        one, other = (group[row] for row in pair)
        if found := paired(one.by_round, other.by_round):
            pairs[pair] = found
        elif found := independent(one, other):
            apart[pair] = found
    return pairs, apart


def _alone(apart: Estimates) -> dict[Pair, tuple[tuple[Centre, ...], int]]:
    """With the number of centres that share the chance of error, as has `_of_rounds`."""
    return {pair: (found, len(found)) for pair, found in apart.items()}


def _of_rounds(group: Mapping[str, Rates], pairs: Estimates) -> dict[Pair, tuple[tuple[Centre, ...], int]]:
    """A pair's centres: with the scatter of the group, and with its own where there are enough to tell."""
    if not pairs:
        return {}
    ways = max(map(len, pairs.values()))  # in which ratios are estimated: plain, Winsorised
    several = len(pairs) > 1 and max(found[0].count for found in pairs.values()) > 2  # of two rounds it says nothing
    noisier = _far_noisier(group, {pair: found[0] for pair, found in pairs.items()}) if several else set()
    alike = {pair: found for pair, found in pairs.items() if not noisier & set(pair)} or pairs
    pooled = [_pooled({pair: found[min(way, len(found) - 1)] for pair, found in alike.items()}) for way in range(ways)]
    return {
        pair: ((*(way[pair] for way in pooled if pair in way), *found[:several]), ways + several)
        for pair, found in pairs.items()
    }


def _first_look(group: Collection[Rates]) -> int | None:
    """None, too, where the time was up before anybody looked."""
    first = min((rates.first_look for rates in group if rates.first_look is not None), default=None)
    return first if first and max(len(rates.by_round) for rates in group) >= first else None


def _spent(rounds: int, first_look: int | None) -> float:
    """The share of the chance of error that a look after so many rounds takes; those of all looks add up to 1."""
    if first_look is None:
        return 1.0
    return 0.5 if rounds <= first_look else 0.5 * first_look / (rounds * (rounds - 1))


def _far_noisier(group: Mapping[str, Rates], pairs: Mapping[Pair, Centre]) -> set[str]:
    """Rows."""
    variances = {pair: found.error**2 * found.count for pair, found in pairs.items()}
    stretches = {(one, other): _stretch(group[one].by_round, group[other].by_round) for one, other in pairs}
    return _beyond(variances, FAR_NOISIER) & _beyond(stretches, FARTHER_APART)


def _stretch(one: Mapping[Round, float], other: Mapping[Round, float]) -> float:
    """The shortest that holds all the logarithms of the ratios but one of DRAWN_IN."""
    ratios = sorted(log(one[at] / other[at]) for at in one.keys() & other.keys())
    most = len(ratios) - len(ratios) // DRAWN_IN
    return min(high - low for low, high in zip(ratios, ratios[most - 1 :], strict=False))


def _beyond(noise: Mapping[Pair, float], times: float) -> set[str]:
    """Rows. A row's noise is that of its usual pair, since a pair's is the other row's as well."""
    rows = {row for pair in noise for row in pair}
    usual = {row: median_low([each for pair, each in noise.items() if row in pair]) for row in rows}
    return {row for row in rows if usual[row] > times * median_low(usual.values())}


def _pooled(pairs: Mapping[Pair, Centre]) -> dict[Pair, Centre]:
    """Each with no less scatter than their mean, and its degrees of freedom."""
    variances = {pair: found.error**2 * found.count for pair, found in pairs.items()}
    usual, own = fmean(variances.values()), min(found.degrees for found in pairs.values())
    squares = fmean(each**2 for each in variances.values()) / (1 + 2 / own)  # a sample's is so much larger
    alike = min(usual**2 / squares, 1.0) if squares else 1.0
    degrees = own * alike * (len({row for pair in pairs for row in pair}) - 1)
    return {
        pair: Centre(found.value, max(found.error, sqrt(usual / found.count)), found.count, degrees)
        for pair, found in pairs.items()
    }


def open_questions(group: Group, threshold: float, first_look: int) -> set[str]:
    """Rows of a group that another round would tell more about. Rows need not have a rate yet.

    Both sides of every comparison with the fastest that shows neither a difference nor a tie within the `threshold`, a
    half-width (0.03: 3 %); a row alone by its own interval. What would be open after MOST_PROCESSES even if the noise
    were half as large as it seems is given up. It is asked after `first_look` rounds, then after each.
    """
    begun = {row: Rates(rates, first_look=first_look) for row, rates in group.items() if rates}
    waiting = group.keys() - begun.keys()
    if len(group) == 1 and begun:
        return {row for row, rates in begun.items() if _open(rates.interval.scaled(1 / rates.value), threshold)}
    for row, found in against_fastest(begun).items():
        if row != found.fastest and found.verdict != "slower" and _open(found.ratio, threshold):
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


def open_cases(folder: RunFolder, cases: Iterable[tuple[Case, bool]], processes: int, threshold: float) -> set[str]:
    """Ids of those (case, synchronous) whose comparisons are open at that half-width, after `processes` rounds at most.

    What failed, and what does not train the same network, is compared with nothing.
    """
    failed = {key for key, proof in folder.proofs().items() if not proof.passed}
    groups: dict[Key, dict[str, dict[Round, float]]] = defaultdict(dict)
    planned: dict[Key, list[int]] = defaultdict(list)
    for case, synchronous in cases:
        rates = _rates(folder, case, processes, failed) if "native" in case.passes else None
        if rates is not None:
            groups[group(case, synchronous)][case.id] = rates
            planned[group(case, synchronous)].append(case.sampling.processes)
    return set().union(*(open_questions(rates, threshold, min(planned[key])) for key, rates in groups.items()))


def _rates(folder: RunFolder, case: Case, processes: int, failed: set[str]) -> dict[Round, float] | None:
    """Samples/s by round so far; None where one failed."""
    rates = {}
    for repeat in range(processes):
        record = folder.record(case.id, repeat)
        if record is None or record.outcome == CANCELLED:
            continue
        found = rate(record)
        if record.outcome != "ok" or found is None or record.proof in failed:
            return None
        rates[round_of(record)] = found
    return rates
