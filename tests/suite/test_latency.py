"""Percentiles with LoadGen's bound: its own floors of queries, and which latency stands for a percentile."""

import numpy as np
import pytest

from stagebench.suite.analysis.latency import allowed, bound


@pytest.mark.parametrize(("share", "floor"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)])
def test_too_few_queries_have_no_percentile(share, floor):
    assert [allowed(floor - 1, share), allowed(floor, share)] == [0, 1]
    latencies = np.random.default_rng(1).permutation(floor).astype(float)
    assert bound(latencies[1:], share) is None
    assert bound(latencies, share) == floor - 1


def test_more_queries_bring_the_bound_nearer_to_the_percentile():
    latencies = np.arange(100_000) / 100_000
    assert 0.9 < bound(latencies, 0.9) < 0.903
    assert 0.9 < bound(latencies[::100], 0.9) < 0.925
