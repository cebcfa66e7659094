"""How often verdicts over several cases are wrong, how many processes they need, and where a series changed."""

import math

import numpy as np
import pytest
from scipy.stats import t

from stagebench.suite.analysis.compare_runs import (
    FASTER,
    SAME,
    SLOWER,
    Judged,
    Sides,
    judged,
    processes_needed,
    processes_noise,
)
from stagebench.suite.analysis.stats import Interval, Rates, centre
from stagebench.suite.analysis.trend import FEWEST, Noise, change_points, noise


def rates(random, count, level=0.0, scatter=0.02):
    return Rates(dict(enumerate(map(float, 100 * np.exp(random.normal(level, scatter, count))))))


@pytest.mark.parametrize(("cases", "count"), [(1, 5), (8, 5)])
def test_equal_runs_end_as_different_in_at_most_one_of_twenty(cases, count):
    random, false, trials = np.random.default_rng([cases, count]), 0, 300
    for _ in range(trials):
        pairs = [(rates(random, count), rates(random, count, scatter=0.01 * (at % 3 + 1))) for at in range(cases)]
        sides = {at: Sides(*pair) for at, pair in enumerate(pairs)}
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
    assert Judged(SAME, Interval(1.0, 0.8, 1.25, 3), None).resolution == pytest.approx(0.25)


@pytest.mark.parametrize(("change", "cases"), [(0.01, 1), (0.03, 20)])
def test_a_smaller_change_and_more_cases_need_more_processes(change, cases):
    assert processes_needed(Noise(0.02, 8), change, cases) > processes_needed(Noise(0.02, 8), 0.03)
    assert processes_needed(Noise(5.0, 8), change, cases) is None
    sides = Sides(of(0.0, 0.02, 0.01), of(0.0, 0.01, 0.02))
    several, needs = processes_noise(sides.before, sides.after), judged(dict.fromkeys(range(cases), sides), change)
    assert needs[0].needs == processes_needed(several, change, cases)


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


def test_noise_is_that_about_the_levels_and_a_change_surely_smaller_than_asked_is_none():
    values = [0, 1, 0, 1, 0, 1, 9, 10, 9, 10, 9, 10]
    found = noise(values)
    assert found is not None
    assert (found.deviation, found.degrees) == (pytest.approx(math.sqrt(3 / 10)), 10)
    assert noise(values[: FEWEST - 1]) is None
    assert change_points(values, 9.6) == [6], "9 and a confidence interval of 0.7"
    assert change_points(values, 9.8) == []


# --- the arithmetic, to the digit ----------------------------------------------


def of(*logarithms):
    return Rates({at: 100 * math.exp(each) for at, each in enumerate(logarithms)})


def half(one):
    return math.log(one.ratio.high / one.ratio.value)


def test_holms_levels():
    """Of three, and of what is left after each that shows a difference; after the first that does not, none does."""
    steady = (0.0, 0.01, -0.01)
    shifts = {"clear": 0.5, "not so clear": 0.06, "none": 0.001}
    moved = {name: of(*(each + shift for each in steady)) for name, shift in shifts.items()}
    found = judged({name: Sides(of(*steady), after) for name, after in moved.items()}, 0)
    assert [one.verdict for one in found.values()] == [FASTER, FASTER, SAME]
    error = math.sqrt(2) * centre(steady).error
    for one, left in zip(found.values(), (3, 2, 1), strict=True):
        assert half(one) == pytest.approx(error * t.ppf(1 - 0.025 / left, 4))
    unsure = of(*(each + 0.0265 for each in steady))  # of chance 0.03: enough for one case, and not for three
    assert judged({0: Sides(of(*steady), unsure)}, 0)[0].verdict == FASTER
    found = judged({name: Sides(of(*steady), unsure) for name in shifts}, 0)
    assert {one.verdict for one in found.values()} == {SAME}
    assert [half(one) for one in found.values()] == [pytest.approx(error * t.ppf(1 - 0.025 / 3, 4))] * 3


@pytest.mark.parametrize(
    ("factor", "threshold", "verdict"),
    [(1.02, 0.03, SAME), (1.02, 0.01, FASTER), (1 / 1.02, 0.03, SAME), (1 / 1.02, 0.01, SLOWER), (1.0, 0.0, SAME)],
)
def test_a_change_that_is_certainly_smaller_than_the_threshold_is_none(factor, threshold, verdict):
    sides = Sides(of(0.0, 0.0), of(math.log(factor), math.log(factor)))
    assert judged({0: sides}, threshold)[0].verdict == verdict


@pytest.mark.parametrize(("deviation", "hopeless"), [(0.0086, False), (0.0087, True)])
def test_what_runs_differ_by_is_their_noise_and_no_number_of_processes_lowers_it(deviation, hopeless):
    before, after, runs = of(0.0, 0.0002), of(0.0, 0.0001), Noise(deviation, 6)
    (found,) = judged({0: Sides(before, after, runs)}, 0.03).values()
    assert half(found) == pytest.approx(t.ppf(0.975, 6) * deviation * math.sqrt(2))  # 0.0298 and 0.0301
    assert found.needs == (None if hopeless else processes_needed(processes_noise(before, after), 0.03))
    assert found.ratio.processes == 2


def test_the_wider_noise_is_taken():
    before, after = (0.0, 0.01, 0.02, 0.03, 0.04), (0.1, 0.11, 0.12, 0.13, -2.5)
    (found,) = judged({0: Sides(of(*before), of(*after))}, 0).values()
    assert math.log(found.ratio.value) == pytest.approx(centre(after).value - centre(before).value)
    steady = (0.0, 0.01, -0.01)
    runs = Noise(0.005, 1)  # a smaller error than the processes', of which less is known
    (found,) = judged({0: Sides(of(*steady), of(*steady), runs)}, 0).values()
    assert half(found) == pytest.approx(t.ppf(0.975, 1) * 0.005 * math.sqrt(2))
