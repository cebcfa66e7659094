"""A trend within the measured region is found; noise, spikes and a load that comes and goes are none."""

from itertools import combinations, permutations
from statistics import median

import numpy as np
import pytest
from scipy.stats import kendalltau

from stagebench.suite.analysis.trend import ACCEPTED, ALIKE_AT, NOTICED, Trend, drifts, together, trend


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
    slope = median((times[j] - times[i]) / (j - i) for i, j in pairs)
    found = trend(np.array(times))
    assert found.balance == sum((times[j] > times[i]) - (times[j] < times[i]) for i, j in pairs)
    assert found.chance == pytest.approx(kendalltau(range(count), times, method="exact").pvalue, rel=1e-12)
    assert found.change == pytest.approx(slope * (count - 1) / median(times), rel=1e-12)


def test_processes_together_are_judged_by_all_their_orders_and_the_chances_accepted():
    """Of four and three stretches, every order of both."""
    counts = (4, 3)
    both = [(one, other) for one in permutations(range(4)) for other in permutations(range(3))]
    balances = [sum((b > a) - (b < a) for order in orders for a, b in combinations(order, 2)) for orders in both]
    for balance in range(10):
        halves = (balance // 2, balance - balance // 2)
        found = together([Trend(0.1, half, count) for half, count in zip(halves, counts, strict=True)])
        assert found == pytest.approx(min(1.0, np.mean([abs(each) >= balance for each in balances])))
    assert [Trend(0.1, balance, 10).chance < ALIKE_AT for balance in (21, 23)] == [False, True]
    assert [Trend(0.1, balance, 10).chance < ACCEPTED for balance in (25, 27)] == [False, True]
    assert Trend(0.1, 10, 5).chance == pytest.approx(1 / 60)


def test_without_an_order_or_with_too_few_steps_there_is_no_trend():
    assert trend(np.ones(6)) == Trend(0.0, 0, 6)
    assert Trend(0.0, 0, 6).chance == pytest.approx(1.0)
    assert trend(np.array([0.1, 0.2, 0.3, 0.4])) is None
    assert not drifts([None])
    assert not drifts([])


def test_neither_noise_nor_a_slow_step_at_an_end_is_a_trend():
    random = np.random.default_rng(1)
    found = [trend(steps(random, 50)).chance < 0.05 for _ in range(2000)]
    assert np.mean(found) < 0.06
    times = steps(np.random.default_rng(2), 50)
    times[:2] *= 30
    found = trend(times)
    assert not drifts([found] * 3)


# Of ten stretches, 45 pairs: a balance of 21 has a chance of 0.073, of 23 one of 0.047, of 27 one of 0.017.
FASTER, SLOWER, SLIGHT, CHANCE = Trend(-0.1, -23, 10), Trend(0.1, 23, 10), Trend(-0.04, -45, 10), Trend(-0.1, -21, 10)


@pytest.mark.parametrize(
    ("trends", "marked"),
    [
        ([FASTER] * 3, True),
        ([SLOWER] * 2, True),
        ([FASTER, FASTER, SLOWER], False),
        ([FASTER, FASTER, SLIGHT], False),
        ([FASTER, FASTER, CHANCE], False),
        ([FASTER, FASTER, None], False),
        # Of five or more, one in five may hide it by chance.
        *(([*[FASTER] * 4, other], True) for other in (SLOWER, SLIGHT, CHANCE, None)),
        ([*[FASTER] * 3, CHANCE, CHANCE], False),
        ([*[SLOWER] * 8, CHANCE, FASTER], True),
        ([*[SLOWER] * 7, CHANCE, CHANCE, FASTER], False),
        ([FASTER], False),  # a lone process wants more certainty
        ([Trend(-0.1, -27, 10)], True),
        ([Trend(0.1, 10, 5)], True),  # five steps, each slower than all before it
        ([Trend(0.1, 8, 5)], False),
        ([Trend(0.1, 10, 5)] * 5, True),
        ([Trend(-0.1, 27, 10)], False),  # most pairs rise, and the usual one falls
        ([Trend(-NOTICED, -45, 10)] * 2, False),
    ],
)
def test_nearly_every_process_must_drift_the_same_way(trends, marked):
    assert drifts(trends) is marked


def marked(random, processes, rows, count, spoilt=lambda times: times, **given):
    """The share of rows of so many processes that have the mark."""
    found = [drifts([trend(spoilt(steps(random, count, **given))) for _ in range(processes)]) for _ in range(rows)]
    return float(np.mean(found))


@pytest.mark.parametrize("processes", [1, 2, 5, 10])
def test_neither_noise_nor_spikes_are_a_trend_more_often_than_accepted(processes):
    """Noise of 15 % takes most slopes beyond NOTICED; spikes are a load that hits a step or not, by itself."""
    random, error = np.random.default_rng(processes), 2 * (ACCEPTED * (1 - ACCEPTED) / 1000) ** 0.5

    def spikes(times):
        hit = random.random(times.size) < 0.2
        return times * np.where(hit, 1 + random.uniform(0.05, 0.4, times.size), 1.0)

    assert marked(random, processes, 1000, 20, noise=0.15) <= ACCEPTED + error
    assert marked(random, processes, 1000, 20, spikes) <= ACCEPTED + error


@pytest.mark.parametrize("processes", [1, 2, 5, 10])
def test_a_tenth_over_the_measured_region_is_found_from_twelve_steps_on(processes):
    random = np.random.default_rng(processes)
    for count in (12, 20):
        assert marked(random, processes, 200, count, change=0.1, noise=0.02) >= 0.9


@pytest.mark.parametrize(("processes", "most"), [(1, 0.2), (2, 0.05), (5, 0.01)])
def test_a_load_that_comes_and_goes_is_hardly_ever_a_trend(processes, most):
    """It slows down some stretch of the measured region by 5 to 40 %."""
    random = np.random.default_rng(processes)

    def visited(times):
        begin, end = np.sort(random.integers(0, times.size + 1, 2))
        times[begin:end] *= 1 + random.uniform(0.05, 0.4)
        return times

    assert marked(random, processes, 500, 60, visited) <= most
