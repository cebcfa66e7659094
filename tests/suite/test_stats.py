"""What an interval of a speed and of a ratio covers, and what is made of too few numbers."""

import math

import numpy as np
import pytest

from suite.analysis import stats
from suite.analysis.stats import NO_VERDICT, Interval, Rates, ratio


def rates(*values, first=0):
    return Rates(dict(enumerate(values, first)))


def test_a_rate_is_the_median_over_processes():
    found = rates(40.0, 20.0, 80.0).interval
    assert (found.value, found.processes) == (40.0, 3)
    assert found.low < 20
    assert found.high > 80
    assert found.low * found.high == pytest.approx(40.0**2)  # on logarithms


def test_equal_processes_leave_nothing_uncertain():
    assert rates(4.0, 4.0, 4.0).interval == Interval(4.0, 4.0, 4.0, 3)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 10, 15])
def test_the_interval_covers_the_truth_95_times_in_100(count):
    random, hits, trials = np.random.default_rng(count), 0, 2000
    for _ in range(trials):
        found = rates(*(100 * np.exp(random.normal(0, 0.02, count)))).interval
        hits += found.low <= 100 <= found.high
    assert 0.94 <= hits / trials <= 0.975


def test_one_process_that_was_disturbed_does_not_hide_what_four_agree_on():
    calm, hit = rates(100.0, 101.0, 99.0, 100.5, 100.2), rates(100.0, 101.0, 99.0, 100.5, 70.0)
    assert hit.interval.high / hit.interval.low < 1.15
    plain = stats.student_t(0.975, 4) * np.std(np.log(list(hit.by_round.values())), ddof=1) / math.sqrt(5)
    assert math.log(hit.interval.high / hit.value) < plain
    found = ratio(hit, rates(*(90.0 * rate / 100 for rate in calm.by_round.values())))
    assert (found.value, found.verdict) == (pytest.approx(1 / 0.9, rel=0.01), "faster")


@pytest.mark.parametrize("lag", [0, 4])
def test_of_one_process_the_steps_tell_also_where_neighbours_resemble_each_other(lag):
    random, hits, trials = np.random.default_rng(lag), 0, 500
    for _ in range(trials):
        noise = np.convolve(random.normal(0, 0.05, 500 + lag), np.ones(lag + 1), "valid")
        steps = 0.1 + 0.01 * noise
        found = Rates({0: 8 / float(steps.mean())}, steps).interval
        hits += found.low <= 80 <= found.high
    assert hits / trials > 0.92
    assert found.processes == 1


def test_of_one_step_nothing_is_known():
    assert Rates({0: 80.0}, np.array([0.1])).interval == Interval(80.0, 80.0, 80.0, 1)


def test_drift_of_the_rounds_cancels():
    drift = np.array([1.0, 0.8, 1.3, 0.6, 1.1])
    ours, theirs = rates(*(104 * drift)), rates(*(100 * drift * [1.001, 0.999, 1.002, 0.998, 1.0]))
    found = ratio(ours, theirs)
    assert (found.verdict, found.processes) == ("faster", 5)
    assert found.high - found.low < 0.01
    assert ours.interval.high / ours.interval.low > 2, "each by itself is not known"


@pytest.mark.parametrize("count", [3, 5, 10])
def test_equal_speeds_are_called_different_5_times_in_100(count):
    random, false = np.random.default_rng(count), 0
    for _ in range(2000):
        ours, theirs = np.exp(random.normal(0, 0.02, (2, count)))
        false += ratio(rates(*ours), rates(*theirs)).verdict != "no detectable difference"
    assert 70 <= false <= 130


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "faster"), (0.9, "slower"), (1.0, "no detectable difference")])
def test_verdicts(factor, verdict):
    found = ratio(rates(*(factor * np.array([1.0, 1.01, 0.99]))), rates(1.005, 1.0, 1.0))
    assert found.verdict == verdict
    assert found.low < found.value < found.high


def test_without_two_common_rounds_there_is_no_verdict():
    steps = np.linspace(0.1, 0.12, 60)
    found = ratio(Rates({0: 80.0}, steps), Rates({0: 16.0}, steps))
    assert (found.value, found.processes, found.verdict) == (5.0, 1, NO_VERDICT)
    assert 1.0 < found.low < 5.0 < found.high
    apart = ratio(rates(5.0, 5.1), rates(1.0, 1.01, first=7))
    assert (apart.processes, apart.verdict) == (0, NO_VERDICT)


def test_speeds_that_have_nothing_in_common_are_numbers_all_the_same():
    found = rates(1e-200, 1e200).interval
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)


def test_scaling_an_interval():
    assert Interval(2.0, 1.0, 4.0, 3).scaled(0.5) == Interval(1.0, 0.5, 2.0, 3)


def test_outliers_are_marked_and_nothing_else():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 30.0, 9.8]
    assert stats.outliers(values).tolist() == [False] * 5 + [True, False]
    assert not stats.outliers([1.0]).any()
    assert not stats.outliers(np.arange(100.0)).any()
