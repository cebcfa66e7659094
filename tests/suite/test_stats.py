import math

import numpy as np
import pytest

from suite.analysis import stats


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr(stats, "DRAWS", 400)


def processes(random, count, between, within, steps=40, mean=0.01):
    centres = mean * np.exp(random.normal(0, between, count))
    return [centre * np.exp(random.normal(-within * within / 2, within, steps)) for centre in centres]


def test_a_rate_is_the_median_over_processes_of_samples_over_mean_seconds():
    estimate = stats.rate([[0.1, 0.3], [0.4, 0.4], [0.1, 0.1]], samples_per_step=8)
    assert estimate.value == pytest.approx(40.0)  # 40, 20, 80
    interval = estimate.interval
    assert interval.low <= 20
    assert interval.high >= 80
    assert interval.processes == 3


def test_equal_steps_leave_nothing_uncertain():
    interval = stats.rate([[0.5] * 4] * 3, samples_per_step=2).interval
    assert (interval.low, interval.value, interval.high) == pytest.approx((4.0, 4.0, 4.0))


def test_the_same_run_gives_the_same_interval_in_any_chunking(monkeypatch):
    data = processes(np.random.default_rng(1), 3, 0.02, 0.05)
    first = stats.rate(data, 8).interval
    assert stats.rate(data, 8).interval == first
    monkeypatch.setattr(stats, "CHUNK", 100)
    assert stats.rate(data, 8).interval.low == pytest.approx(first.low, rel=0.01)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_covers_the_truth_about_95_times_in_100(few_draws, count):
    random, hits, trials = np.random.default_rng(count), 0, 300
    for _ in range(trials):
        interval = stats.rate(processes(random, count, between=0.02, within=0.05), 8).interval
        hits += interval.low <= 800 <= interval.high
    assert 0.92 <= hits / trials <= 0.99


def test_without_the_spread_three_processes_would_promise_too_much(few_draws, monkeypatch):
    monkeypatch.setattr(stats, "_spread", lambda processes: 1.0)
    random, hits = np.random.default_rng(3), 0
    for _ in range(300):
        interval = stats.rate(processes(random, 3, between=0.02, within=0.05), 8).interval
        hits += interval.low <= 800 <= interval.high
    assert hits / 300 < 0.92


def test_a_ratio_of_equal_speeds_is_rarely_called_a_difference(few_draws):
    random = np.random.default_rng(7)
    verdicts = [
        stats.ratio(*(stats.rate(processes(random, 3, 0.02, 0.05), 8) for _ in range(2))).verdict for _ in range(200)
    ]
    assert verdicts.count("no detectable difference") >= 190


@pytest.mark.parametrize(("mean", "verdict"), [(0.005, "faster"), (0.02, "slower"), (0.01, "no detectable difference")])
def test_verdicts(mean, verdict):
    random = np.random.default_rng(5)
    ours = stats.rate(processes(random, 3, 0.01, 0.05, mean=mean), 8)
    theirs = stats.rate(processes(random, 3, 0.01, 0.05), 8)
    found = stats.ratio(ours, theirs)
    assert found.verdict == verdict
    assert found.value == pytest.approx(ours.value / theirs.value)
    assert found.low < found.value < found.high


def test_one_process_gives_no_verdict():
    found = stats.ratio(stats.rate([[0.1, 0.1]], 8), stats.rate([[0.5, 0.5]] * 3, 8))
    assert found.value == pytest.approx(5.0)
    assert found.processes == 1
    assert found.verdict == "no verdict from one process"


def test_scaling_an_interval():
    assert stats.Interval(2.0, 1.0, 4.0, 3).scaled(0.5) == stats.Interval(1.0, 0.5, 2.0, 3)


def test_outliers_are_marked_and_nothing_else():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 30.0, 9.8]
    assert stats.outliers(values).tolist() == [False] * 5 + [True, False]
    assert not stats.outliers([1.0]).any()
    assert not stats.outliers(np.arange(100.0)).any()


@pytest.mark.parametrize(
    ("degrees", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042), (10**6, 1.960)]
)
def test_student_t_against_the_printed_tables(degrees, expected):
    assert stats.student_t(0.975, degrees) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("bad", [[], [[]], [[0.1], [0.0]], [[0.1, math.nan]], [[-1.0]]])
def test_times_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match="process"):
        stats.rate(bad, 8)
