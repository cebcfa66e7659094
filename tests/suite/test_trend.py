"""A trend within the measured region is found; noise, spikes and a load that comes and goes are none."""

from itertools import combinations
from statistics import NormalDist, median

import numpy as np
import pytest

from suite.analysis.trend import ALL_AT, ALONE_AT, NOTICED, Trend, drifts, trend


def steps(random, count, change=0.0, noise=0.04):
    ramp = 1 + change * np.linspace(-0.5, 0.5, count)
    return 0.01 * ramp * np.exp(random.normal(0, noise, count))


@pytest.mark.parametrize("count", [8, 50, 1000])
@pytest.mark.parametrize("change", [-0.2, 0.2])
def test_a_change_is_found_with_its_size(count, change):
    found = trend(steps(np.random.default_rng(count), count, change, noise=0.01))
    assert found.change == pytest.approx(change, abs=0.04)
    assert found.chance < 0.01


@pytest.mark.parametrize(
    "times", [[1.0, 2.0, 3.0, 5.0, 4.0, 6.0], [7.0, 1.0, 2.0, 3.0, 5.0], [2.0, 8.0, 4.0, 9.0, 7.0, 5.0, 3.0]]
)
def test_its_figures_are_those_of_mann_kendall_and_sen(times):
    """By the definitions, pair for pair."""
    count, pairs = len(times), list(combinations(range(len(times)), 2))
    balance = sum((times[j] > times[i]) - (times[j] < times[i]) for i, j in pairs)
    spread = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    slope = median((times[j] - times[i]) / (j - i) for i, j in pairs)
    found = trend(np.array(times))
    assert found.chance == pytest.approx(2 * NormalDist().cdf(-max(abs(balance) - 1, 0) / spread), rel=1e-12)
    assert found.change == pytest.approx(slope * (count - 1) / median(times), rel=1e-12)


def test_no_order_at_all_is_as_likely_as_can_be():
    assert trend(np.ones(6)) == Trend(0.0, 1.0)


def test_noise_alone_gives_the_chance_that_it_says():
    random = np.random.default_rng(1)
    found = [trend(steps(random, 50)).chance < 0.05 for _ in range(2000)]
    assert np.mean(found) < 0.06


def test_a_slow_step_at_an_end_is_no_trend():
    times = steps(np.random.default_rng(2), 50)
    times[:2] *= 30
    found = trend(times)
    assert not drifts([found] * 3)


def test_too_few_steps_tell_nothing():
    assert trend(np.array([0.1, 0.2, 0.3, 0.4])) is None
    assert not drifts([None])
    assert not drifts([])


FASTER, SLOWER, SLIGHT, CHANCE = Trend(-0.1, 0.02), Trend(0.1, 0.02), Trend(-0.04, 1e-9), Trend(-0.1, 0.06)


@pytest.mark.parametrize(
    ("trends", "marked"),
    [
        ([FASTER] * 3, True),
        ([SLOWER] * 2, True),
        ([FASTER, FASTER, SLOWER], False),
        ([FASTER, FASTER, SLIGHT], False),
        ([FASTER, FASTER, CHANCE], False),
        ([FASTER, FASTER, None], False),
        ([FASTER], False),  # a lone process wants more certainty
        ([Trend(-0.1, 0.009)], True),
        ([Trend(-0.1, ALL_AT)] * 2, False),
        ([Trend(-0.1, ALONE_AT)], False),
        ([Trend(-NOTICED, 0.0)] * 2, False),
    ],
)
def test_every_process_must_drift_the_same_way(trends, marked):
    assert drifts(trends) is marked


@pytest.mark.parametrize(("processes", "most"), [(1, 0.2), (2, 0.05), (5, 0.01)])
def test_a_load_that_comes_and_goes_is_hardly_ever_a_trend(processes, most):
    """It slows down some stretch of the measured region by 5 to 40 %."""
    random, marked = np.random.default_rng(processes), 0
    for _ in range(500):
        found = []
        for _ in range(processes):
            times = steps(random, 60)
            begin, end = np.sort(random.integers(0, 61, 2))
            times[begin:end] *= 1 + random.uniform(0.05, 0.4)
            found.append(trend(times))
        marked += drifts(found)
    assert marked / 500 <= most
