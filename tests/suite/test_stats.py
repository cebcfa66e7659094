"""What an interval of a speed and of a ratio covers, and what is made of too few numbers."""

import math

import numpy as np
import pytest
from scipy.stats import t, ttest_ind

from stagebench.suite.analysis import stats
from stagebench.suite.analysis.stats import (
    NO_VERDICT,
    Centre,
    Interval,
    Rates,
    centre,
    independent,
    paired,
    rates_of,
    ratio,
)


def rates(*values, first=0):
    return Rates(dict(enumerate(values, first)))


def test_a_rate_is_the_geometric_mean_over_processes_as_is_its_ratio():
    found = rates(40.0, 20.0, 80.0).interval
    assert (found.value, found.processes) == (40.0, 3)
    assert found.low < 20
    assert found.high > 80
    assert found.low * found.high == pytest.approx(40.0**2)  # on logarithms
    one, other = rates(100.0, 100.0, 60.0), rates(99.0, 99.0, 99.0)
    assert one.value < other.value
    assert ratio(other, one).value == pytest.approx(other.value / one.value)
    assert one.interval.value == one.value
    assert rates(4.0, 4.0, 4.0).interval == Interval(4.0, 4.0, 4.0, 3), "equal processes leave nothing uncertain"
    assert Rates({0: 80.0}, np.array([0.1])).interval == Interval(80.0, 80.0, 80.0, 1), "nor does a single step"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 10, 15])
def test_the_interval_covers_the_truth_95_times_in_100(count):
    random, hits, trials = np.random.default_rng(count), 0, 2000
    for _ in range(trials):
        found = rates(*(100 * np.exp(random.normal(0, 0.02, count)))).interval
        hits += found.low <= 100 <= found.high
    assert 0.94 <= hits / trials <= 0.975


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


def test_drift_of_the_rounds_cancels():
    drift = np.array([1.0, 0.8, 1.3, 0.6, 1.1])
    ours, theirs = rates(*(104 * drift)), rates(*(100 * drift * [1.001, 0.999, 1.002, 0.998, 1.0]))
    found = ratio(ours, theirs)
    assert (found.verdict, found.processes) == ("faster", 5)
    assert found.high - found.low < 0.01
    assert ours.interval.high / ours.interval.low > 2, "each by itself is not known"


def test_runs_at_different_times_are_compared_by_welch_s_test_be_they_of_one_process():
    """Their drifts have nothing to do with each other; in the same rounds they would cancel."""
    drift = np.array([1.0, 0.8, 1.3, 0.6, 1.1])
    ours, together, apart = (rates(*(speed * drift), first=first) for speed, first in ((104, 0), (100, 0), (100, 7)))
    assert ratio(ours, together).verdict == "faster"
    assert ratio(ours, apart).verdict == "no detectable difference"
    known = ttest_ind(*(np.log(list(one.by_round.values())) for one in (ours, apart)), equal_var=False)
    assert ratio(ours, apart).high == pytest.approx(math.exp(known.confidence_interval().high))
    assert ratio(rates(5.0, 5.1), rates(1.0, 1.01, first=7)).verdict == "faster", "as large a difference shows"
    assert independent(rates(2.0), rates(1.0, 1.0)) is None
    found = independent(rates(2.0, 2.0), rates(1.0, 1.0, 1.0))
    assert found == Centre(pytest.approx(math.log(2)), 0.0, 2, 3)
    ours, theirs = of_logarithms(0.0, 0.2), Rates({9: 50.0}, np.linspace(0.1, 0.12, 60))
    found = ratio(ours, theirs)
    assert found.value == pytest.approx(ours.value / theirs.value)
    assert half(found) == pytest.approx(math.hypot(half(ours.interval), half(theirs.interval)))


@pytest.mark.parametrize(("first", "common"), [(2, True), (3, False), (4, False)])
def test_rounds_are_paired_where_half_of_them_are_common(first, common):
    """Of four; a resumed run leaves single rounds that are not."""
    ours, theirs = rates(1.0, 2.0, 3.0, 4.0), rates(1.0, 1.1, 1.2, 1.3, first=first)
    assert (paired(ours.by_round, theirs.by_round) is not None) == common


def test_outliers_are_marked_and_intervals_scaled():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 30.0, 9.8]
    assert stats.outliers(values).tolist() == [False] * 5 + [True, False]
    assert not stats.outliers([1.0]).any()
    assert not stats.outliers(np.arange(100.0)).any()
    for least, most, far in ((-5, 9, 0), (-5.01, 9, 1), (-5, 9.01, 1)):  # three quartile ranges beyond
        assert stats.outliers([least, 0, 1, 2, 2, 2, 3, 4, most]).sum() == far
    assert Interval(2.0, 1.0, 4.0, 3).scaled(0.5) == Interval(1.0, 0.5, 2.0, 3)


# --- the arithmetic, to the digit ----------------------------------------------


def half(interval):
    """On logarithms."""
    return math.log(interval.high / interval.value)


def of_logarithms(*values):
    return rates(*(100 * math.exp(value) for value in values))


@pytest.mark.parametrize(
    ("values", "winsorised", "mean", "error", "degrees"),
    [
        ([10, 1, 2, 3, 4], True, 3, 2 / math.sqrt(5), 2),  # 2 2 3 4 4
        ([10, 1, 2, 3, 4], False, 4, math.sqrt(12.5 / 5), 4),
        ([10, 1, 2, 3], True, 4, math.sqrt(50 / 3 / 4), 3),
        ([*range(1, 10), 100], True, 5.5, math.sqrt(42.5 / 9 / 10) * 9 / 5, 5),  # 3 3 3 4 5 6 7 8 8 8
    ],
)
def test_a_centre_is_a_mean_plain_or_winsorised_and_its_error(values, winsorised, mean, error, degrees):
    found = centre(values, winsorised)
    assert found == Centre(pytest.approx(mean), pytest.approx(error), len(values), degrees)
    assert centre(values) == centre(values, winsorised=False)


@pytest.mark.parametrize(
    ("value", "error", "chance"),
    [(1.0, 0.5, 2 * t.sf(2, 4)), (-1.0, 0.5, 2 * t.sf(2, 4)), (0.0, 0.5, 1.0), (0.0, 0.0, 1.0), (0.1, 0.0, 0.0)],
)
def test_the_chance_of_a_centre_is_two_sided(value, error, chance):
    found = Centre(value, error, 5, 4)
    assert found.chance == pytest.approx(chance)
    widths = (found.half_width(), found.half_width(0.9))
    assert widths == pytest.approx((error * t.ppf(0.975, 4), error * t.ppf(0.95, 4)))


def test_an_interval_is_student_s_over_processes_or_batches_of_steps():
    found = of_logarithms(0.0, 0.1, 0.3)
    error = np.std([0.0, 0.1, 0.3], ddof=1) / math.sqrt(3)
    assert half(found.interval) == pytest.approx(t.ppf(0.975, 2) * error)
    steps = np.linspace(0.1, 0.2, 25) ** 2
    batches = [np.mean(steps[at : at + 3]) for at in range(1, 25, 3)]
    assert half(Rates({0: 1.0}, steps).interval) == pytest.approx(centre(np.log(batches)).half_width())
    assert half(Rates({0: 1.0}, steps[:2]).interval) == pytest.approx(centre(np.log(steps[:2])).half_width())


def test_rates_come_of_steps_and_of_one_process_there_is_no_verdict():
    one, other = np.array([0.1, 0.3]), np.array([0.4])
    assert rates_of({}, 8) is None
    assert rates_of({3: one, 4: other}, 8) == Rates({3: 40.0, 4: 20.0})
    assert rates_of({3: one}, 8).by_round == {3: 40.0}
    assert rates_of({3: one}, 8).steps is one
    steps = np.linspace(0.1, 0.12, 60)
    found = ratio(Rates({0: 80.0}, steps), Rates({0: 16.0}, steps))
    assert (found.value, found.processes, found.verdict) == (5.0, 1, NO_VERDICT)
    assert 1.0 < found.low < 5.0 < found.high


@pytest.mark.parametrize(("level", "given"), [(0.95, {}), (0.9, {"level": 0.9})])
@pytest.mark.parametrize("logarithms", [(0.1, 0.2), (0.1, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4, 2.5)])
def test_a_ratio_of_rounds_has_students_interval(level, given, logarithms):
    found = ratio(of_logarithms(*logarithms), rates(*[100.0] * 5), **given)
    count = len(logarithms)
    width = t.ppf(0.5 + level / 2, count - 1) * np.std(logarithms, ddof=1) / math.sqrt(count)
    assert found.processes == count
    assert (math.log(found.value), half(found)) == (pytest.approx(np.mean(logarithms)), pytest.approx(width))


@pytest.mark.parametrize("counts", [(2, 2), (4, 3), (3, 7), (5, 6)])
def test_independent_runs_are_compared_by_welchs_test(counts):
    random = np.random.default_rng(counts)
    ours, theirs = (random.normal(0.1, 0.05, count) for count in counts)
    found = independent(of_logarithms(*ours), of_logarithms(*theirs))
    known = ttest_ind(ours, theirs, equal_var=False)
    assert found.chance == pytest.approx(known.pvalue)
    assert (found.degrees, found.count) == (pytest.approx(known.df), min(counts))
    assert found.value == pytest.approx(ours.mean() - theirs.mean())


def test_a_verdict_needs_an_interval_without_1_and_two_rounds():
    bounds = ((1.0, 1.2), (0.8, 1.0), (1.001, 1.2), (0.8, 0.999))
    verdicts = [Interval(1.0, low, high, 2).verdict for low, high in bounds]
    assert verdicts == ["no detectable difference"] * 2 + ["faster", "slower"]
    assert Interval(1.0, 1.1, 1.2, 1).verdict == NO_VERDICT


def test_a_share_is_shown_where_its_error_leaves_it_determined():
    for share, error in ((0.5, None), (0.5, 0.3), (-0.3, 0.3), (1.3, 0.3), (0.0, None), (1.0, None)):
        assert stats.determined(share, error) == min(max(share, 0.0), 1.0), (share, error)
    for share, error in ((0.5, 0.301), (-0.301, 0.3), (1.301, 0.3), (-0.001, None), (1.001, 0.0)):
        assert stats.determined(share, error) is None, (share, error)


def test_no_interval_overflows():
    assert stats.around(2.0, 1000.0, 2) == Interval(2.0, 2.0 / math.exp(100), 2.0 * math.exp(100), 2)
    found = rates(1e-200, 1e200).interval
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)


def test_a_lone_row_that_is_measured_until_its_interval_is_narrow_is_held_by_it_in_95_of_100():
    stream, held, runs = np.random.default_rng(1), 0, 400
    for _ in range(runs):
        speeds = list(np.exp(stream.normal(0.0, 0.04, 5)))
        while True:
            found = Rates({("", at): speed for at, speed in enumerate(speeds)}, first_look=5).interval
            if found.high / found.value <= 1.03 or len(speeds) == 50:
                break
            speeds.append(float(np.exp(stream.normal(0.0, 0.04))))
        held += found.low <= 1.0 <= found.high
    assert held >= 0.94 * runs
    rounds = {("", at): 1.0 + at / 100 for at in range(5)}
    ways = [
        stats.ratio(Rates(rounds, first_look=looks), Rates({("", 9 + at): 1.0 for at in range(5)}))
        for looks in (None, 5)
    ]
    assert ways[0].high < ways[1].high, "the ratio of such a row is no surer than its own interval"
