"""The queue's model against theory, and the rate that keeps a bound between two that were tried."""

import math
from statistics import fmean

import numpy as np
import pytest

from stagebench.suite.analysis.latency import allowed, bound
from stagebench.suite.analysis.queueing import Station, latencies
from stagebench.suite.analysis.serving import served
from stagebench.suite.worker.case_parts import Serving
from stagebench.suite.worker.messages import ServerUse, Try

USE = ServerUse("mosec", "1.0", [])


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_batches_of_one_wait_as_pollaczek_and_khinchine_say(load):
    seconds = 0.01
    waits = fmean(latencies(load / seconds, Station((seconds,)), 50_000)) - seconds
    assert waits == pytest.approx(load * seconds / (2 * (1 - load)), rel=0.1)
    begins_empty = fmean(latencies(load / seconds, Station((seconds,)), 20)) - seconds
    assert begins_empty < waits


@pytest.mark.parametrize(("share", "floor"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)])
def test_too_few_queries_have_no_percentile(share, floor):
    """The floors are LoadGen's own."""
    assert [allowed(floor - 1, share), allowed(floor, share)] == [0, 1]
    measured = np.random.default_rng(1).permutation(floor).astype(float)
    assert bound(measured[1:], share) is None
    assert bound(measured, share) == floor - 1


def test_more_queries_bring_the_bound_nearer_to_the_percentile():
    measured = np.arange(100_000) / 100_000
    assert 0.9 < bound(measured, 0.9) < 0.903
    assert 0.9 < bound(measured[::100], 0.9) < 0.925


def test_a_lone_query_waits_for_the_whole_delay_and_a_full_batch_for_none():
    assert np.quantile(latencies(0.01, Station((0.001,) * 4, delay_s=0.05), 100), 0.5) == pytest.approx(0.051)
    assert np.quantile(latencies(1e6, Station((1e-9,) * 4, delay_s=0.05), 100), 0.9) < 0.001


def tries(rate, seconds, answered=64, **more):
    stages = {"queue": 0.0, "forward": seconds}
    return Try(rate, 64, [seconds] * answered, [1] * answered, [seconds] * answered, stages, 1.0, **more)


def keeping(*found, **rule):
    found = served({("a", 0): (found, USE)}).keeping(Serving(bound_share=0.9, **rule))
    return found and (found.rate.value, found.at_least)


def test_the_rate_lies_between_the_tries_around_the_bound():
    found = tries(100, 0.01), tries(400, 0.04), tries(200, 0.02)
    assert keeping(*found, bound_ms=30) == (pytest.approx(200 * 2 ** (math.log(1.5) / math.log(2))), False)
    assert keeping(*found, bound_ms=50) == (400, True), "no larger rate was tried"
    assert keeping(*found, bound_ms=5) is None
    assert keeping(tries(100, 0.01), tries(200, 0.02, answered=10), bound_ms=30) == (100, True), "it was given up"
    assert keeping(tries(100, 0.01)._replace(scheduled=10, latency_s=[0.01] * 10), bound_ms=30) is None, "too few"


def test_a_case_without_the_load_has_none():
    assert served({("a", 0): ([], None)}) is None


def test_a_delay_may_count_from_when_the_server_takes_a_query():
    taken = Station((0.01,) * 4, delay_s=0.01, since_arrival=False)
    assert fmean(latencies(90.0, taken, 1000)) > fmean(latencies(90.0, taken._replace(since_arrival=True), 1000))


def test_a_server_s_own_time_is_between_batches():
    lone = Station((0.01,), gap_s=0.005)
    assert min(latencies(0.01, lone, 100)) == pytest.approx(0.01)
    assert fmean(latencies(60.0, lone, 1000)) > fmean(latencies(60.0, lone._replace(gap_s=0.0), 1000))


def test_queries_pile_up_behind_slow_batches_that_come_together():
    together, apart = (Station((0.01,), (series,)) for series in ((1.0,) * 80 + (2.0,) * 20, (1.0,) * 4 + (2.0,)))
    assert np.quantile(latencies(60.0, together, 5000), 0.99) > 1.5 * np.quantile(latencies(60.0, apart, 5000), 0.99)


def test_a_query_without_an_answer_is_infinitely_late():
    lags = {"lag_s": [0.0] * 64}
    lost = tries(100, 0.01, answered=50, refused=14, **lags)
    assert keeping(lost, bound_ms=30) is None
    assert keeping(tries(100, 0.01, **lags), bound_ms=30) == (100, True)
    assert served({("a", 0): ([lost], USE)}).unanswered == 14


@pytest.mark.parametrize(("lag", "seconds", "kept"), [(4e-4, 0.01, 1), (6e-4, 0.01, 0), (4e-4, 0.003, 0)])
def test_rates_whose_queries_were_sent_late_are_left_out(lag, seconds, kept):
    found = served({("a", 0): ([tries(100, seconds, lag_s=[lag] * 64)], USE)})
    assert (len(found.first), found.late) == (kept, 1 - kept)


def test_the_model_is_given_the_batches_at_the_next_rates_and_what_their_queries_take_beyond():
    rates = [tries(10, 0.02), tries(20, 0.01), tries(40, 0.001)._replace(latency_s=[0.006] * 64)]
    found = served({("a", 0): (rates, USE)})
    slow, middle, quick = (found.compared(at, 1, Serving(bound_share=0.9))[0.5] for at in found.first)
    assert (slow.measured, middle.measured, quick.measured) == (0.02, 0.01, 0.006)
    assert slow.predicted == pytest.approx(0.01)
    assert middle.predicted == pytest.approx((0.02 + 0.001) / 2, rel=0.3)
    assert quick.predicted == pytest.approx(0.01, rel=0.1)
    (lone,) = served({("a", 0): (rates[:1], USE)}).first
    assert served({("a", 0): (rates[:1], USE)}).compared(lone, 1, Serving(bound_share=0.9))[0.5].predicted is None


def test_goodput_counts_right_answers_within_the_bound():
    found = served({("a", 0): ([tries(100, 0.01), tries(200, 0.02), tries(400, 0.01, wrong=14, compared=64)], USE)})
    assert found.goodput(Serving(bound_ms=15)) == {100: 64.0, 200: 0.0, 400: 50.0}


def test_a_percentile_of_too_few_queries_is_not_compared_with_the_model():
    found = served({("a", 0): ([tries(10, 0.02), tries(20, 0.01)], USE)})
    assert set(found.compared(found.first[0], 1, Serving(bound_share=0.99))) == {0.5}
    many = tries(10, 0.02)._replace(latency_s=[0.02] * 662, scheduled=662)
    found = served({("a", 0): ([many, tries(20, 0.01)], USE)})
    assert set(found.compared(found.first[0], 1, Serving(bound_share=0.99))) == {0.5, 0.99}


def test_parts_of_tries_that_tell_all_of_them_add_up_to_the_latency():
    whole = tries(100, 0.01)._replace(stage_s={"lag": 0.001, "server": 0.004, "forward": 0.002, "back": 0.003})
    other = tries(100, 0.03)._replace(stage_s={"lag": 0.001, "server": 0.027, "forward": 0.002})
    (at,) = served({("a", 0): ([whole, other], USE)}).first
    assert at.stages == whole.stage_s


def test_the_kept_rate_of_several_processes_has_an_interval_in_words():
    found = {("a", at): ([tries(rate, 0.01), tries(8 * rate, 0.04)], USE) for at, rate in enumerate((100, 110, 105))}
    kept = served(found).keeping(Serving(bound_share=0.9, bound_ms=10.0))
    assert (kept.rate.processes, kept.words) == (3, "105 (93.2 … 118)")
