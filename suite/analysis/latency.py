"""Percentiles of latencies, as MLPerf's LoadGen bounds them when a test is stopped early.

A percentile of a few hundred queries is luck. LoadGen (loadgen/early_stopping.cc) takes the t-th largest latency as its
bound, where t is the largest number for which so few slow queries would be seen in at most one test of a hundred if
more than 1 - share of all queries were that slow. With too few queries there is no such t, and no figure.
"""

import math
from functools import lru_cache

import numpy as np

from stagebench.suite.analysis.stats import Values

CONFIDENCE = 0.99
PERCENTILES = {"single_stream": (0.9, 0.99), "multi_stream": (0.99,)}  # by load: LoadGen's own first


def bound(latencies: Values, share: float) -> float | None:
    """Return the latency that `share` of all queries keep, with LoadGen's confidence; None of too few queries."""
    slow = allowed(latencies.size, share)
    return float(np.partition(latencies, -slow)[-slow]) if slow else None


@lru_cache(maxsize=1024)
def allowed(queries: int, share: float) -> int:
    """Return the number of slow queries that may be among them; 0: they are too few to say anything."""
    seen, found = 0.0, 0  # the probability of at most `found` slow ones, if 1 - share of all queries are
    for slow in range(queries):
        chance = math.lgamma(queries + 1) - math.lgamma(slow + 1) - math.lgamma(queries - slow + 1)
        seen += math.exp(chance + slow * math.log(1 - share) + (queries - slow) * math.log(share))
        if seen > 1 - CONFIDENCE:
            break
        found = slow
    return found


def passes(queries: int, slow: int, share: float) -> bool:
    """Return whether `slow` queries are few enough to say that `share` of all are not slow."""
    return slow <= allowed(queries, share) and share**queries <= 1 - CONFIDENCE


def words_of(share: float) -> str:
    """Return "p90", "p99.9"."""
    return f"p{share * 100:g}"
