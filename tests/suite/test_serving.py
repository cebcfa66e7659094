"""The queue's model against theory, and the rate that keeps a bound between two that were tried."""

import math
from statistics import fmean

import numpy as np
import pytest

from suite.analysis.queueing import latencies
from suite.analysis.serving import served
from suite.worker.case_parts import Serving
from suite.worker.messages import Try


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_batches_of_one_wait_as_pollaczek_and_khinchine_say(load):
    seconds = 0.01
    waits = fmean(latencies(load / seconds, (seconds,), 0.0, 50_000)) - seconds
    assert waits == pytest.approx(load * seconds / (2 * (1 - load)), rel=0.1)
    begins_empty = fmean(latencies(load / seconds, (seconds,), 0.0, 20)) - seconds
    assert begins_empty < waits


def test_a_lone_query_waits_for_the_whole_delay_and_a_full_batch_for_none():
    assert np.quantile(latencies(0.01, (0.001,) * 4, 0.05, 100), 0.5) == pytest.approx(0.051)
    assert np.quantile(latencies(1e6, (1e-9,) * 4, 0.05, 100), 0.9) < 0.001


def tries(rate, seconds, answered=64):
    stages = {"queue": 0.0, "assembly": 0.0, "inference": seconds}
    return Try(rate, 64, [seconds] * answered, [1] * answered, stages, 1.0)


def keeping(*found, **rule):
    whole = served({("a", 0): (found, [0.001])})
    found = whole.keeping(Serving(bound_share=0.9, **rule))
    return found and (found.rate.value, found.at_least)


def test_the_rate_lies_between_the_tries_around_the_bound():
    found = tries(100, 0.01), tries(400, 0.04), tries(200, 0.02)
    assert keeping(*found, bound_ms=30) == (pytest.approx(200 * 2 ** (math.log(1.5) / math.log(2))), False)
    assert keeping(*found, bound_ms=50) == (400, True), "no larger rate was tried"
    assert keeping(*found, bound_ms=5) is None
    assert keeping(tries(100, 0.01), tries(200, 0.02, answered=10), bound_ms=30) == (100, True), "it was given up"
    assert keeping(tries(100, 0.01)._replace(scheduled=10, latency_s=[0.01] * 10), bound_ms=30) is None, "too few"


def test_a_case_without_the_load_has_none():
    assert served({("a", 0): ([], [])}) is None
