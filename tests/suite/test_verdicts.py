"""How often verdicts over several cases are wrong, how many processes they need, and where a series changed."""

import math

import numpy as np
import pytest

from suite.analysis.change_points import FEWEST, Noise, change_points, noise
from suite.analysis.power import processes_needed
from suite.analysis.stats import Rates
from suite.analysis.verdicts import SAME, SLOWER, Sides, judged


def rates(random, count, level=0.0, scatter=0.02):
    return Rates(dict(enumerate(map(float, 100 * np.exp(random.normal(level, scatter, count))))))


@pytest.mark.parametrize(("cases", "count"), [(1, 5), (8, 5)])
def test_equal_runs_end_as_different_in_at_most_one_of_twenty(cases, count):
    random, false, trials = np.random.default_rng([cases, count]), 0, 300
    for _ in range(trials):
        sides = {
            at: Sides(rates(random, count), rates(random, count, scatter=0.01 * (at % 3 + 1))) for at in range(cases)
        }
        false += any(one.verdict != SAME for one in judged(sides, 0.0).values())
    assert false / trials <= 0.075, "5 % and three standard errors"


def test_a_slow_down_shows_with_the_processes_that_were_suggested():
    random, found, trials = np.random.default_rng(3), 0, 100
    for _ in range(trials):
        needs = judged({0: Sides(rates(random, 5), rates(random, 5))}, 0.03)[0].needs
        sides = Sides(rates(random, needs), rates(random, needs, -math.log(1.03)))
        found += judged({0: sides}, 0.03)[0].verdict == SLOWER
    assert found / trials >= 0.9


def test_what_runs_differ_by_outweighs_agreeing_processes():
    random = np.random.default_rng(4)
    before, after = rates(random, 5, 0.0, 0.001), rates(random, 5, 0.05, 0.001)
    alone, beside = (judged({0: Sides(before, after, runs)}, 0.03)[0] for runs in (None, Noise(0.05, 6)))
    assert (alone.verdict, beside.verdict) == ("faster", SAME)
    assert beside.resolution > 0.1
    assert beside.needs is None


@pytest.mark.parametrize(("change", "cases"), [(0.01, 1), (0.03, 20)])
def test_a_smaller_change_and_more_cases_need_more_processes(change, cases):
    assert processes_needed(Noise(0.02, 8), change, cases) > processes_needed(Noise(0.02, 8), 0.03)
    assert processes_needed(Noise(5.0, 8), change, cases) is None


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ([0, 1, 0, 1, 0, 1, 9, 10, 9, 10, 9, 10], [6]),
        ([0, 1, 0, 1, 0, 1, 0, 9, 10, 9, 10, 1, 0, 1, 0, 1, 0, 1], [7, 11]),
        ([0, 1, 0, 1, 0, 1, 30, 1, 0, 1, 0, 1, 0, 1], []),
        ([0, 1, 0, 1, 0, 1, 0, 1, 0, 1], []),
        ([0, 9, 9, 9], []),
        ([], []),
    ],
    ids=["a step", "there and back", "an outlier", "steady", "too few", "none"],
)
def test_change_points(values, begins):
    assert change_points(values) == begins


def test_a_change_that_is_surely_smaller_than_asked_is_none():
    values = [0, 1, 0, 1, 0, 1, 9, 10, 9, 10, 9, 10]
    assert change_points(values, 9.6) == [6], "9 and a confidence interval of 0.7"
    assert change_points(values, 9.8) == []


@pytest.mark.parametrize(("runs", "size"), [(10, 4.0), (20, 3.0)])
def test_a_change_is_found_within_one_run_and_a_steady_series_has_none(runs, size):
    """As large as a slow-down of 3 % is with the suggested number of processes, and smaller in longer series."""
    random, found, false, trials = np.random.default_rng(runs), 0, 0, 200
    for _ in range(trials):
        at = int(random.integers(3, runs - 2))
        values = random.normal(0, 1, runs)
        false += bool(change_points(values))
        values[at:] += size
        found += any(abs(each - at) <= 1 for each in change_points(values))
    assert found / trials >= 0.93
    assert false / trials <= 0.1, "5 % and three standard errors"


def test_noise_is_that_about_the_levels():
    values = [0, 1, 0, 1, 0, 1, 9, 10, 9, 10, 9, 10]
    found = noise(values)
    assert found is not None
    assert (found.deviation, found.degrees) == (pytest.approx(math.sqrt(3 / 10)), 10)
    assert noise(values[: FEWEST - 1]) is None
