"""Leaders of a group of rows, without the winner's curse: every pair is compared, at a simultaneous level.

Measured often enough, one of several equal rows always comes out first. So a row leads unless another one is
significantly faster: intervals of all pairs cover together 95 times in 100 (Bonferroni), and several rows may lead.

A pair's scatter from few rounds is itself a guess. It is estimated in two ways, and the narrower interval is given. In
one, no pair has less than the group's mean, whose degrees of freedom are the pair's own for every row but one, fewer if
pairs differ in their scatter (F. E. Satterthwaite, "An approximate distribution of estimates of variance components",
1946). In the other, a pair has its own scatter. Both hold together at half the chance of error each. A row that
scatters far more than the others does not show their noise, nor they its own: its pairs only have the latter. Its
scatter decides that, but not by one round alone, which a load hit. Pairs that were measured at different times only
have their own scatter, too, since nothing cancels in them: they are compared as two runs are.

A measurement that continues until its verdicts are clear looks after every round, and each look is another chance to be
wrong. The looks share the 5 % (K. K. G. Lan, D. L. DeMets, "Discrete sequential boundaries for clinical trials", 1983):
half is spent when the planned rounds are done, the rest bit by bit, however long it continues.
tests/validation/conclusions.py shows how often verdicts are false all the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, log1p, sqrt
from statistics import fmean, median_low

from stagebench.suite.analysis.comparability import Key, group
from stagebench.suite.analysis.measured import rate, round_of
from stagebench.suite.analysis.stats import (
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
from stagebench.suite.contracts.case import Case
from stagebench.suite.results.records import CANCELLED
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.session.end_rule import MOST_PROCESSES

FAR_NOISIER, FARTHER_APART = 10.0, 2.0  # times the usual row's variance, and the stretch of most of its rounds
SEVERAL = 5  # rounds from which the noise is known well enough to give up

Group = Mapping[str, Mapping[Round, float]]  # samples/s by row and round
Pair = tuple[str, str]
Estimates = dict[Pair, Centre]  # of the logarithm of each pair's ratio


@dataclass(frozen=True)
class Against:
    """A row compared with the fastest of its group."""

    verdict: str  # "leads", "shares the lead", "slower"; "no verdict: ..." of fewer than two processes
    leaders: tuple[str, ...]  # ids, the fastest first
    fastest: str  # id of the row compared with: the fastest, or the fastest of those that are surely faster
    ratio: Interval  # to that row's speed, all pairs of the group together at 95 %; 1 for that row itself

    @property
    def leads(self) -> bool:
        """True if it leads, alone or with others."""
        return self.verdict in ("leads", "shares the lead")


def against_fastest(group: Mapping[str, Rates]) -> dict[str, Against]:
    """Return the verdicts, by row, of rows that may be compared."""
    pairs = compared(group)
    order = sorted(group, key=lambda row: -group[row].value)
    known = {row for pair in pairs for row in pair}
    faster = {row: [other for other in order if (other, row) in pairs and pairs[other, row].low > 1] for row in order}
    leaders = tuple(row for row in order if row in known and not faster[row])
    verdicts = {}
    for row, rates in group.items():
        rivals = [other for other in faster[row] if other in leaders] or faster[row] or leaders or order
        fastest = rivals[0]
        to_fastest = pairs.get((row, fastest)) or ratio(rates, group[fastest])
        if row == fastest:
            to_fastest = Interval(1.0, 1.0, 1.0, len(rates.by_round))
        verdict = "slower"
        if row not in known:
            verdict = NO_VERDICT
        elif row in leaders:
            verdict = "leads" if len(leaders) == 1 else "shares the lead"
        verdicts[row] = Against(verdict, leaders, fastest, to_fastest)
    return verdicts


def compared(group: Mapping[str, Rates]) -> dict[Pair, Interval]:
    """Return every pair's ratio of speeds, the first over the second, both ways, if both have two processes.

    The intervals hold together at LEVEL, and over all looks together, if a run looked.
    """
    estimates: Estimates = {}
    paired_up: Estimates = {}  # those measured in common rounds
    for one, other in combinations(group, 2):
        if common := paired(group[one].by_round, group[other].by_round):
            estimates[one, other] = paired_up[one, other] = common
        elif apart := independent(group[one], group[other]):
            estimates[one, other] = apart
    # A pair's own scatter of two rounds shows nothing.
    both_ways = len(paired_up) > 1 and max(own.count for own in paired_up.values()) > 2
    pooled = _pooled(paired_up, _far_noisier(group, paired_up) if both_ways else set())
    chance = (1 - LEVEL) / max(1, len(estimates))
    first_look = min((rates.first_look for rates in group.values() if rates.first_look), default=0)
    looked = 0 < first_look <= max(len(rates.by_round) for rates in group.values())
    intervals = {}
    for pair, own in estimates.items():
        share = chance * (_spent(own.count, first_look) if looked else 1)
        joint = pooled.get(pair, own)
        half = joint.half_width(1 - share)
        if both_ways and pair in paired_up:
            half = min(estimate.half_width(1 - share / 2) for estimate in (joint, own))
        intervals[pair] = around(exp(own.value), half, own.count)
        intervals[pair[1], pair[0]] = around(exp(-own.value), half, own.count)
    return intervals


def _pooled(pairs: Estimates, noisier: set[str]) -> Estimates:
    """Return the pairs without the rows that are far noisier, with no less scatter than their mean, and its degrees."""
    if not pairs:
        return {}
    alike = {pair: own for pair, own in pairs.items() if not noisier & set(pair)} or pairs
    variances = [own.error**2 * own.count for own in alike.values()]
    usual, degrees = fmean(variances), min(own.degrees for own in alike.values())
    squares = fmean(each**2 for each in variances) / (1 + 2 / degrees)  # a sample's is larger by this factor
    similarity = min(usual**2 / squares, 1.0) if squares else 1.0
    degrees *= similarity * (len({row for pair in alike for row in pair}) - 1)
    return {
        pair: Centre(own.value, max(own.error, sqrt(usual / own.count)), own.count, degrees)
        for pair, own in alike.items()
    }


def _spent(rounds: int, first_look: int) -> float:
    """Return the share of the chance of error that a look after `rounds` takes; those of all looks add up to 1."""
    return 0.5 if rounds <= first_look else 0.5 * first_look / (rounds * (rounds - 1))


def _far_noisier(group: Mapping[str, Rates], pairs: Estimates) -> set[str]:
    """Return the rows whose scatter, and whose stretch of most rounds, is far beyond the usual row's."""
    variances = {pair: own.error**2 * own.count for pair, own in pairs.items()}
    stretches = {(one, other): _stretch(group[one].by_round, group[other].by_round) for one, other in pairs}
    return _beyond(variances, FAR_NOISIER) & _beyond(stretches, FARTHER_APART)


def _beyond(noise: Mapping[Pair, float], times: float) -> set[str]:
    """Return the rows beyond `times` the usual noise; a row's is that of its usual pair, which has two rows' noise."""
    usual = {row: median_low([own for pair, own in noise.items() if row in pair]) for pair in noise for row in pair}
    return {row for row in usual if usual[row] > times * median_low(usual.values())}


def _stretch(ours: Mapping[Round, float], theirs: Mapping[Round, float]) -> float:
    """Return the shortest stretch of the logarithms of the ratios that holds all but one in DRAWN_IN of them."""
    ratios = sorted(log(ours[at] / theirs[at]) for at in ours.keys() & theirs.keys())
    most = len(ratios) - len(ratios) // DRAWN_IN
    return min(high - low for low, high in zip(ratios, ratios[most - 1 :], strict=False))


def open_questions(group: Group, threshold: float, first_look: int) -> set[str]:
    """Return the rows of a group whose comparisons another round may settle; rows need not have a rate yet.

    They are both sides of every comparison with the fastest that shows neither a difference nor a tie within the
    `threshold`, a half-width (0.03: 3 %); a lone row counts by its own interval. A comparison is given up if it would
    be open after MOST_PROCESSES even with half the noise. It is asked after `first_look` rounds, then after each.
    """
    begun = {row: Rates(rates, first_look=first_look) for row, rates in group.items() if rates}
    if len(group) == len(begun) == 1:
        return {row for row, rates in begun.items() if _open(rates.interval.scaled(1 / rates.value), threshold)}
    waiting = group.keys() - begun.keys()
    for row, against in against_fastest(begun).items():
        if row != against.fastest and against.verdict != "slower" and _open(against.ratio, threshold):
            waiting |= {row, against.fastest}
    return waiting


def _open(interval: Interval, threshold: float) -> bool:
    """Return True if an interval is too wide, and may yet become narrow enough.

    It is hopeless if MOST_PROCESSES will show neither a difference as large as it looks, nor a tie.
    """
    wide = interval.processes < 2 or interval.high / interval.value - 1 > threshold
    expected = log(interval.high / interval.value) * sqrt(interval.processes / MOST_PROCESSES)
    hopeless = interval.processes >= SEVERAL and expected / 2 > max(log1p(threshold), abs(log(interval.value)))
    return wide and not hopeless


def open_cases(folder: RunFolder, cases: Iterable[tuple[Case, bool]], processes: int, threshold: float) -> set[str]:
    """Return ids of (case, synchronous) whose comparisons are open at that half-width, after `processes` rounds.

    A case that failed, or does not train the same network, is compared with nothing.
    """
    failed = {key for key, proof in folder.proofs().items() if not proof.passed}
    groups: dict[Key, dict[str, dict[Round, float]]] = defaultdict(dict)
    planned: dict[Key, list[int]] = defaultdict(list)
    for case, synchronous in cases:
        if case.speed_pass not in case.passes:
            continue
        rates: dict[Round, float] = {}
        for repeat in range(processes):
            record = folder.record(case.id, repeat)
            if record is None or record.outcome == CANCELLED:
                continue
            speed = rate(record)
            if record.result != "ok" or speed is None or record.proof in failed:
                break
            rates[round_of(record)] = speed
        else:
            key = group(case, synchronous)
            groups[key][case.id] = rates
            planned[key].append(case.sampling.processes)
    return set().union(*(open_questions(rates, threshold, min(planned[key])) for key, rates in groups.items()))
