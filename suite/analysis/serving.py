"""The load `server`: latency by rate, the largest rate that keeps a bound, and where the time of a query goes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

import numpy as np

from stagebench.suite.analysis import queueing
from stagebench.suite.analysis.latency import allowed, bound
from stagebench.suite.analysis.queueing import Station
from stagebench.suite.analysis.stats import Interval, Rates, Round
from stagebench.suite.analysis.wording import bracketed, number
from stagebench.suite.text import grouped
from stagebench.suite.worker.case_parts import ARRIVALS, BURST, Serving
from stagebench.suite.worker.messages import ServerUse, Try

LATE_S, LATE = 5e-4, 0.1  # a generator is late whose lag's p99 exceeds either: seconds, a share of the latency's p99


@dataclass(frozen=True)
class AtRate:
    """The tries at one rate, of one process."""

    rate: float  # scheduled queries/s
    tries: Sequence[Try]

    @cached_property
    def latencies(self) -> np.ndarray:
        """Every query's, in seconds; infinity for one that got no answer, or a wrong one."""
        lost = np.full(sum(map(unanswered, self.tries)), np.inf)
        # Which answers were wrong is not recorded: the soonest, at worst.
        found = (
            np.where(np.arange(len(each.latency_s)) < each.wrong, np.inf, np.sort(each.latency_s))
            for each in self.tries
        )
        return np.concatenate([*found, lost])

    @property
    def saturated(self) -> bool:
        """True if the queue grew beyond hope, and a try was ended."""
        return any(max(len(each.latency_s), len(each.lag_s)) < each.scheduled for each in self.tries)

    @property
    def late(self) -> bool:
        """True if the generator sent queries too late for their latencies to be the server's."""
        waits = np.concatenate([np.asarray(each.lag_s) for each in self.tries])
        answered = self.latencies[np.isfinite(self.latencies)]
        if not len(waits) or not len(answered):
            return False
        return bool(np.quantile(waits, 0.99) > min(LATE_S, LATE * np.quantile(answered, 0.99)))

    @property
    def batch(self) -> float | None:
        """The mean number of queries in a batch; None if no batch was seen."""
        sizes = [size for each in self.tries for size in each.batches]
        return fmean(sizes) if sizes else None

    @property
    def answered(self) -> bool:
        """True if any query got an answer."""
        return any(each.latency_s for each in self.tries)

    def within(self, share: float) -> float | None:
        """Return the latency that `share` of the queries keep; None of too few queries, infinity where it saturates."""
        return math.inf if self.saturated else bound(self.latencies, share)

    def goodput(self, rule: Serving) -> float:
        """Return the right answers/s whose latencies keep the bound."""
        kept = np.count_nonzero(self.latencies <= rule.bound_ms / 1000)
        return float(kept) / sum(each.wall_s for each in self.tries)

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of a query, in the mean; together its latency. Tries that tell more parts than others alone count."""
        most = max(len(each.stage_s) for each in self.tries)
        tries = [each for each in self.tries if len(each.stage_s) == most]
        answers = max(1, sum(len(each.latency_s) for each in tries))
        return {
            name: sum(len(each.latency_s) * each.stage_s[name] for each in tries) / answers for name in tries[0].stage_s
        }


class Compared(NamedTuple):
    """A quantile of the latency at a rate, seconds; not LoadGen's bound on it."""

    measured: float
    predicted: float | None  # None: the model knows too little


class Kept(NamedTuple):
    """The rate that keeps a bound."""

    rates: Rates  # queries/s, by process
    at_least: bool  # True: no rate above it is known that does not keep the bound, or only one that was given up

    @property
    def rate(self) -> Interval:
        """The mean over processes."""
        return self.rates.interval

    @property
    def words(self) -> str:
        return f"{'at least ' * self.at_least}{number(self.rate.value)}{bracketed(self.rate)}"


@dataclass(frozen=True)
class Served:
    """The load `server` of a case: rates of each process, lowest first."""

    by_round: Mapping[Round, Sequence[AtRate]]
    model_server: ServerUse | None
    every: Sequence[Try]  # those of rates that are left out, too
    late: int = 0  # rates that are left out: the generator was late
    hosts: int = 1  # that answered

    @property
    def unanswered(self) -> int:
        """Queries that were sent and got no answer: refused, timed out, malformed or failed."""
        return sum(map(unanswered, self.every))

    @property
    def wrong(self) -> int:
        """Answers that were not those to their queries."""
        return sum(each.wrong for each in self.every)

    @property
    def compared_answers(self) -> int:
        """Answers that were compared."""
        return sum(each.compared for each in self.every)

    @property
    def first(self) -> Sequence[AtRate]:
        """The rates of the first process that has any, lowest first."""
        return next(iter(self.by_round.values()), ())

    def keeping(self, rule: Serving) -> "Kept | None":
        """Return the largest rate whose latencies keep the bound, over processes; None where no rate is known to."""
        found = {at: kept for at, rates in self.by_round.items() if (kept := _keeping(rates, rule))}
        if not found or len(found) < len(self.by_round):
            return None
        return Kept(Rates({at: rate for at, (rate, _) in found.items()}), any(more for _, more in found.values()))

    def at_bound(self, rule: Serving) -> AtRate | None:
        """Return the largest rate of the first process that keeps the bound; the lowest if none does; None of none."""
        return next(iter(_within(self.first, rule)[-1:] or self.first[:1]), None)

    def goodput(self, rule: Serving) -> dict[float, float]:
        """Return the right answers/s that keep the bound, by rate, over all processes."""
        every = [at for rates in self.by_round.values() for at in rates]
        return {
            rate: AtRate(rate, [each for at in same for each in at.tries]).goodput(rule)
            for rate, same in sorted(grouped(every, attrgetter("rate")).items())
        }

    def pooled(self, share: float) -> dict[float, float]:
        """Return the latency that a share of all processes' queries keep, by rate, where such a latency is known."""
        found = dict[float, float]()
        every = [at for rates in self.by_round.values() for at in rates]
        for rate, same in grouped(every, attrgetter("rate")).items():
            seconds = bound(np.concatenate([at.latencies for at in same]), share)
            if seconds is not None and math.isfinite(seconds) and not any(at.saturated for at in same):
                found[rate] = seconds
        return found

    def compared(self, at: AtRate, most: int, rule: Serving) -> dict[float, Compared]:
        """Return quantiles at a rate of the first process, measured and by the model: the median, the bounded share.

        The model is given the batches, of `most` queries at most, at the next rates below and above, and what the
        median there is beyond it: what a query takes on its way there and back. It knows no traces, no servers
        elsewhere and no second host. The bounded share is left out of too few queries, of which LoadGen would give no
        percentile either.
        """
        shares = [0.5, *([rule.bound_share] if allowed(at.latencies.size, rule.bound_share) else [])]
        place = self.first.index(at)
        near = [self.first[other] for other in (place - 1, place + 1) if 0 <= other < len(self.first)]
        tries = [each for other in near for each in other.tries if each.batches]
        model, beyond = None, 0.0
        if tries and rule.arrivals in ARRIVALS and self.hosts == 1:
            station, at_once = self._station(tries, most, rule), BURST if rule.arrivals == "bursts" else 1

            def simulated(rate: AtRate) -> tuple[float, ...]:
                return queueing.latencies(rate.rate, station, rate.tries[0].scheduled, at_once)

            model = simulated(at)
            medians = ((_quantile(other.latencies, 0.5), _quantile(simulated(other), 0.5)) for other in near)
            apart = [measured - modelled for measured, modelled in medians if math.isfinite(measured)] or [0.0]
            # A queue that grows may be part of it at the rate above.
            beyond = max(0.0, fmean(min(apart[0], each) for each in apart))
        return {
            share: Compared(_quantile(at.latencies, share), None if model is None else _quantile(model, share) + beyond)
            for share in shares
        }

    def _station(self, tries: Sequence[Try], most: int, rule: Serving) -> Station:
        """Return the server, by how long batches of 1 to `most` queries took; sizes never seen follow from others."""
        sizes = np.concatenate([each.batches for each in tries])
        seconds = np.concatenate([each.batch_s for each in tries])
        seen = sorted(set(sizes.tolist()))
        means = [float(seconds[sizes == size].mean()) for size in seen]
        slope = max(0.0, float(np.polyfit(sizes, seconds, 1)[0])) if len(seen) > 1 else 0.0
        every = np.arange(1, most + 1)
        typical = np.interp(every, seen, means) + slope * np.maximum(0, every - seen[-1])
        series = [np.divide(each.batch_s, typical[np.array(each.batches) - 1]) for each in tries]
        in_turn = tuple(tuple((factors / factors.mean()).tolist()) for factors in series)
        station = Station(tuple(typical.tolist()), in_turn, self.delay_ms(rule) / 1000 if most > 1 else 0.0)
        server = self.model_server
        if server is None or server.gap_s is None:
            return station
        return station._replace(since_arrival=server.since_arrival, gap_s=max(0.0, server.gap_s))

    def delay_ms(self, rule: Serving) -> float:
        """Return for how long the oldest query of a batch did wait: a server may round what it was asked for."""
        seen = self.model_server
        return rule.max_delay_ms if seen is None or seen.delay_s is None else 1000 * seen.delay_s


def _quantile(values: Sequence[float] | np.ndarray, share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))  # one of them: some may be infinite


def served(found: Mapping[Round, tuple[Sequence[Try], ServerUse | None]], hosts: int = 1) -> Served | None:
    """Return the tries of each process together, and their model server; None if none ran the load."""
    # A server that ended before its last try has no use, and what it kept until then is no result.
    ran = {at: (tries, use) for at, (tries, use) in found.items() if tries and (use or not tries[0].lag_s)}
    if not ran:
        return None
    rates = {
        at: [AtRate(rate, same) for rate, same in sorted(grouped(tries, attrgetter("rate")).items())]
        for at, (tries, _) in ran.items()
    }
    by_round = {at: kept for at, own in rates.items() if (kept := [each for each in own if not each.late])}
    late = sum(each.late for own in rates.values() for each in own)
    every = [each for tries, _ in ran.values() for each in tries]
    return Served(by_round, next(server for _, server in ran.values()), every, late, hosts)


def unanswered(tried: Try) -> int:
    """Return the queries of a try that were sent and got no answer."""
    return tried.malformed + tried.refused + tried.timed_out + tried.failed


def _keeping(rates: Sequence[AtRate], rule: Serving) -> tuple[float, bool] | None:
    """Return the rate, and whether a larger one may keep the bound, too; None if not even the first one does.

    It lies between the last rate that keeps the bound and the next one, by interpolating logarithms.
    """
    keeping = _within(rates, rule)
    if not keeping:
        return None
    last, following = keeping[-1], rates[len(keeping) : len(keeping) + 1]
    seconds, more = (next((at.within(rule.bound_share) for at in each), None) for each in ([last], following))
    if seconds is None or more is None or following[0].saturated:
        return last.rate, True
    if math.isinf(more):  # queries without an answer, of a try that came to its end
        return last.rate, False
    share = math.log(rule.bound_ms / 1000 / seconds) / math.log(more / seconds)
    return float(last.rate * (following[0].rate / last.rate) ** share), False


def _within(rates: Sequence[AtRate], rule: Serving) -> list[AtRate]:
    """Return the lowest rates, up to the first one that does not keep the bound."""

    def keeps(at: AtRate) -> bool:
        seconds = at.within(rule.bound_share)
        return seconds is not None and seconds <= rule.bound_ms / 1000

    return list(takewhile(keeps, rates))
