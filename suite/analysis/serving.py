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

from suite.analysis import queueing
from suite.analysis.latency import bound
from suite.analysis.stats import Interval, Rates, Round
from suite.analysis.wording import number
from suite.text import grouped
from suite.worker.case_parts import Serving
from suite.worker.messages import Try


@dataclass(frozen=True)
class AtRate:
    """The tries at one rate, of one process."""

    rate: float  # scheduled queries/s
    tries: Sequence[Try]

    @cached_property
    def latencies(self) -> np.ndarray:
        """Every answered query's, in seconds."""
        return np.concatenate([np.asarray(each.latency_s) for each in self.tries])

    @property
    def saturated(self) -> bool:
        """True if the queue grew beyond hope, and a try was ended."""
        return any(len(each.latency_s) < each.scheduled for each in self.tries)

    @property
    def batch(self) -> float:
        """The mean number of queries in a batch."""
        return fmean(size for each in self.tries for size in each.batches)

    def within(self, share: float) -> float | None:
        """Return the latency that `share` of the queries keep; None of too few queries, infinity where it saturates."""
        return math.inf if self.saturated else bound(self.latencies, share)

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of a query, in the mean; together its latency."""
        weights = [len(each.latency_s) for each in self.tries]
        names = self.tries[0].stage_s
        return {
            name: sum(w * each.stage_s[name] for w, each in zip(weights, self.tries, strict=True)) / sum(weights)
            for name in names
        }


class Compared(NamedTuple):
    """A quantile of the latency at a rate, seconds; not LoadGen's bound on it."""

    measured: float
    predicted: float


class Kept(NamedTuple):
    """The rate that keeps a bound."""

    rate: Interval  # queries/s
    at_least: bool  # True: no rate above it is known that does not keep the bound, or only one that was given up

    @property
    def words(self) -> str:
        return f"{'at least ' * self.at_least}{number(self.rate.value)}"


@dataclass(frozen=True)
class Served:
    """The load `server` of a case: rates of each process, lowest first, and the seconds of a batch of 1, 2, ..."""

    by_round: Mapping[Round, Sequence[AtRate]]
    batch_s: Sequence[float]

    @property
    def wrong(self) -> int:
        """Answers that were not those to their queries."""
        return sum(each.wrong for rates in self.by_round.values() for at in rates for each in at.tries)

    @property
    def compared_answers(self) -> int:
        """Answers that were compared."""
        return sum(each.compared for rates in self.by_round.values() for at in rates for each in at.tries)

    @property
    def first(self) -> Sequence[AtRate]:
        """The rates of the first process, lowest first."""
        return next(iter(self.by_round.values()))

    def keeping(self, rule: Serving) -> "Kept | None":
        """Return the largest rate whose latencies keep the bound, over processes; None where no rate is known to."""
        found = {at: kept for at, rates in self.by_round.items() if (kept := _keeping(rates, rule))}
        if len(found) < len(self.by_round):
            return None
        rates = Rates({at: rate for at, (rate, _) in found.items()})
        return Kept(rates.interval, any(more for _, more in found.values()))

    def pooled(self, share: float) -> dict[float, float]:
        """Return the latency that a share of all processes' queries keep, by rate; without rates that were given up."""
        found = dict[float, float]()
        every = [at for rates in self.by_round.values() for at in rates]
        for rate, same in grouped(every, attrgetter("rate")).items():
            seconds = bound(np.concatenate([at.latencies for at in same]), share)
            if seconds is not None and not any(at.saturated for at in same):
                found[rate] = seconds
        return found

    def compared(self, at: AtRate, rule: Serving) -> dict[float, Compared]:
        """Return quantiles at a rate of the first process, measured and by the model: the median, the bounded share."""
        model = queueing.latencies(at.rate, tuple(self.batch_s), rule.max_delay_ms / 1000, at.tries[0].scheduled)
        return {
            share: Compared(float(np.quantile(at.latencies, share)), float(np.quantile(model, share)))
            for share in (0.5, rule.bound_share)
        }


def served(found: Mapping[Round, tuple[Sequence[Try], Sequence[float]]]) -> Served | None:
    """Return the tries of each process and the seconds of its batches, together; None if none ran the load."""
    ran = {at: own for at, own in found.items() if own[0]}
    if not ran:
        return None
    by_round = {
        at: sorted(
            (AtRate(rate, same) for rate, same in grouped(tries, attrgetter("rate")).items()), key=attrgetter("rate")
        )
        for at, (tries, _) in ran.items()
    }
    return Served(by_round, next(seconds for _, seconds in ran.values()))


def _keeping(rates: Sequence[AtRate], rule: Serving) -> tuple[float, bool] | None:
    """Return the rate, and whether a larger one may keep the bound, too; None if not even the first one does.

    It lies between the last rate that keeps the bound and the next one, by interpolating logarithms.
    """
    limit = rule.bound_ms / 1000
    known = [(at.rate, at.within(rule.bound_share)) for at in rates]
    keeping = list(takewhile(lambda each: each[1] is not None and each[1] <= limit, known))
    if not keeping:
        return None
    rate, seconds = keeping[-1]
    beyond, more = known[len(keeping)] if len(keeping) < len(known) else (rate, None)
    if seconds is None or more is None or math.isinf(more):
        return rate, True
    share = math.log(limit / seconds) / math.log(more / seconds)
    return float(rate * (beyond / rate) ** share), False
