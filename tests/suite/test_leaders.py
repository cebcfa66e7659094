"""Who leads, and who only came out first."""

from math import exp

import numpy as np
import pytest

from stagebench.suite.analysis.leaders import (
    Against,
    _beyond,
    _far_noisier,
    _open,
    _pooled,
    _spent,
    _stretch,
    against_fastest,
    compared,
    open_questions,
)
from stagebench.suite.analysis.stats import NO_VERDICT, Centre, Interval, Rates
from tests.support.noise import even, visited, with_one_faster


def known(rates, first_look=None) -> dict[str, Rates]:
    return {row: Rates(own, first_look=first_look) for row, own in rates.items()}


def verdicts(rates, first_look=None) -> dict[str, Against]:
    return against_fastest(known(rates, first_look))


def rounds(*values):
    return dict(enumerate(values))


FAST, ALIKE, SLOW = rounds(100.0, 101.0, 99.0), rounds(99.5, 101.5, 99.0), rounds(80.0, 81.0, 79.5)


def test_one_leads_or_several_share_the_lead_and_the_others_are_slower_by_so_much():
    found = verdicts({"a": SLOW, "b": FAST})
    assert (found["b"].verdict, found["b"].leads, found["b"].ratio) == ("leads", True, Interval(1.0, 1.0, 1.0, 3))
    assert (found["a"].verdict, found["a"].leads, found["a"].fastest) == ("slower", False, "b")
    assert found["a"].ratio.value == pytest.approx(0.8, rel=0.01)
    assert found["a"].ratio.high < 1.0
    found = verdicts({"a": SLOW, "b": FAST, "c": ALIKE})
    assert [found[row].verdict for row in "abc"] == ["slower", "shares the lead", "shares the lead"]
    assert found["a"].leaders == found["b"].leaders == ("b", "c")
    assert found["c"].fastest == "b"
    assert found["c"].ratio.low < 1.0 < found["c"].ratio.high
    assert verdicts({"a": ALIKE, "b": FAST})["a"].leaders == ("b", "a")


def test_the_slower_are_compared_with_the_fastest_leader_at_the_group_s_level():
    rates = {"a": SLOW, "b": rounds(90.0, 91.0, 89.5), "c": FAST, "d": ALIKE}
    found = verdicts(rates)
    assert (found["a"].fastest, found["b"].fastest) == ("c", "c")
    assert found["a"].ratio == compared(known(rates))["a", "c"]
    pairs = compared(known({"a": FAST, "b": SLOW}))
    assert pairs["a", "b"].low == pytest.approx(1 / pairs["b", "a"].high)


def test_pairs_have_no_less_scatter_than_their_mean_and_degrees_by_satterthwaite():
    pairs = {("a", "b"): Centre(0.1, 1.0, 4, 4), ("a", "c"): Centre(0.2, 1.0, 4, 5), ("b", "c"): Centre(0.3, 3.0, 4, 4)}
    found = _pooled(pairs, set())
    usual, squares = (4 + 4 + 36) / 3, (16 + 16 + 1296) / 3 / (1 + 2 / 4)
    assert [each.error for each in found.values()] == pytest.approx([(usual / 4) ** 0.5, (usual / 4) ** 0.5, 3.0])
    assert [each.degrees for each in found.values()] == pytest.approx([4 * usual**2 / squares * 2] * 3)
    still = {pair: Centre(each.value, 0.0, 4, 4) for pair, each in pairs.items()}
    assert {(each.error, each.degrees) for each in _pooled(still, set()).values()} == {(0.0, 8.0)}


def test_rows_may_have_rounds_that_others_lack():
    rates = {"a": rounds(*[100.0, 101.0] * 4), "b": rounds(*[90.0, 91.5] * 4), "c": rounds(80.0, 81.0)}
    assert [verdicts(rates)[row].verdict for row in "ab"] == ["leads", "slower"]
    longer = {**FAST, 3: 7.0, 4: 900.0}
    assert verdicts({"a": longer, "b": ALIKE, "c": SLOW})["c"].verdict == "slower"


def at(first, values):
    """The same rounds, as somebody measured them another day."""
    return {first + number: value for number, value in values.items()}


def test_a_row_of_another_day_is_compared_all_the_same_and_with_less_certainty():
    drifting = rounds(100.0, 80.0, 130.0)
    near, alike = (rounds(*(share * each for each in drifting.values())) for share in (0.96, 0.999))
    together = verdicts({"a": drifting, "b": near, "c": alike})
    apart = verdicts({"a": drifting, "b": at(50, near), "c": alike})
    assert (together["b"].verdict, apart["b"].verdict) == ("slower", "shares the lead")
    assert apart["c"].verdict == "slower", "the others are paired as before"
    assert verdicts({"a": FAST, "b": at(50, SLOW), "c": ALIKE})["b"].verdict == "slower"
    alone = verdicts({"a": FAST, "b": at(50, SLOW)})
    assert (alone["a"].verdict, alone["b"].verdict, alone["b"].ratio.processes) == ("leads", "slower", 3)


def test_of_equal_rows_of_different_days_one_group_in_twenty_shows_a_difference():
    random, false = np.random.default_rng(3), 0
    for _ in range(1000):
        group = even(random, 4, 5)
        later = even(random, 4, 5)
        mixed = {row: at(50, later[row]) if row in ("row 2", "row 3") else own for row, own in group.items()}
        false += any(not one.leads for one in verdicts(mixed).values())
    assert false / 1000 <= 0.065


def test_two_processes_are_wanted():
    found = verdicts({"a": FAST, "b": SLOW, "c": {7: 500.0}})
    assert (found["c"].verdict, found["c"].leads, found["c"].fastest) == (NO_VERDICT, False, "a")
    assert found["c"].ratio.value == pytest.approx(5.0, rel=1e-3)
    assert (found["a"].verdict, found["b"].verdict) == ("leads", "slower")
    alone = verdicts({"a": {0: 1.0}, "b": {0: 2.0}})
    assert {one.verdict for one in alone.values()} == {NO_VERDICT}


def test_who_is_beaten_by_a_tie_s_other_side_is_compared_with_that_one():
    """The fastest scatters, the second does not: only the second is faster than the third for certain."""
    found = verdicts(
        {
            "wild": rounds(90.0, 130.0, 101.0, 112.0, 98.0, 120.0),
            "calm": rounds(100.0, 100.1, 99.9, 100.0, 100.1, 99.8),
            "third": rounds(84.0, 84.2, 84.1, 83.9, 84.0, 84.1),
        }
    )
    assert found["wild"].verdict == found["calm"].verdict == "shares the lead"
    assert found["third"].verdict == "slower"
    assert found["third"].ratio.high < 1.0


ONE_WILD = (0.2, 0.02, 0.02, 0.02, 0.02)


@pytest.mark.parametrize(
    ("rows", "rounds", "scatter"),
    [
        *((rows, 5, scatter) for rows in (2, 4) for scatter in ((0.02,), (0.045, 0.015, 0.015, 0.015))),
        (4, 4, (0.2, 0.015, 0.015, 0.015)),
        (4, 4, (0.2, 0.2, 0.015, 0.015)),
        (5, 5, ONE_WILD),
    ],
)
def test_of_equal_rows_one_group_in_twenty_shows_a_difference_noisy_rows_or_not(rows, rounds, scatter):
    random = np.random.default_rng(rows)
    groups = [verdicts(even(random, rows, rounds, scatter)) for _ in range(1000)]
    false = sum(any(not one.leads for one in group.values()) for group in groups)
    assert false / 1000 <= 0.065  # 5 %, and two standard errors of 1,000 groups


@pytest.mark.parametrize("rows", [2, 4])
def test_on_a_quiet_machine_five_rounds_find_ten_per_cent(rows):
    random = np.random.default_rng(rows)
    groups = [with_one_faster(even(random, rows, 5), "row 1", 1.1) for _ in range(200)]
    assert np.mean([compared(known(group))["row 1", "row 0"].low > 1 for group in groups]) >= 0.97


def test_a_load_that_comes_and_goes_makes_no_differences_and_hides_few():
    random = np.random.default_rng(5)
    groups = [visited(random, 2, 5) for _ in range(500)]
    assert sum(any(not one.leads for one in verdicts(group).values()) for group in groups) / 500 <= 0.065
    found = [verdicts(with_one_faster(group, "row 1", 1.1))["row 1"].verdict == "leads" for group in groups]
    assert np.mean(found) >= 0.88  # 90 %, and as much of an error


def test_what_is_open_is_measured_again_and_what_is_decided_or_tight_is_not():
    assert open_questions({"a": FAST, "b": SLOW}, 0.03, 3) == set()
    assert open_questions({"a": FAST, "b": ALIKE}, 0.03, 3) == set()  # a tie, and a tight one
    assert open_questions({"a": FAST, "b": ALIKE}, 0.001, 3) == {"a", "b"}
    assert open_questions({"a": FAST, "b": ALIKE, "c": SLOW}, 0.001, 3) == {"a", "b"}
    ties = {"a": FAST, "b": ALIKE, "c": rounds(99.0, 101.2, 99.4)}
    assert open_questions({**ties, "d": {}}, 0.001, 3) == {"a", "b", "c", "d"}
    assert open_questions({"a": FAST, "b": {}}, 0.03, 3) == {"b"}
    assert open_questions({"a": FAST, "b": {0: 80.0}}, 0.03, 3) == {"a", "b"}
    assert open_questions({"a": {}}, 0.03, 3) == {"a"}
    assert open_questions({"a": FAST}, 0.04, 3) == set()
    assert open_questions({"a": FAST}, 0.001, 3) == {"a"}
    assert open_questions({"a": {0: 100.0}}, 0.5, 3) == {"a"}


def test_each_look_takes_a_share_of_the_chance_to_be_wrong():
    near = {"a": FAST, "b": rounds(95.5, 95.0, 94.8)}
    fixed, *looks = (compared(known(near, first_look))["a", "b"].low for first_look in (None, 3, 2))
    assert fixed > looks[0] > looks[1]
    assert compared(known(near, 4))["a", "b"].low == fixed, "the time was up before the first look"
    assert sum(_spent(count, 5) for count in range(5, 100_000)) == pytest.approx(1.0, abs=1e-4)
    assert verdicts(near)["b"].verdict == "slower"
    assert verdicts(near, 2)["b"].verdict == "shares the lead"
    assert open_questions(near, 0.001, 2) == {"a", "b"}, "the rule goes by what the page shows"


def test_looking_after_every_round_makes_no_false_verdicts():
    """Each pair of equal rows is wrong at any of its looks in at most 5 groups of 100; it is in 15 at LEVEL each."""
    random, false = np.random.default_rng(9), 0
    for _ in range(200):
        every = even(random, 2, 20)
        for count in range(5, 21):
            group = {row: {at: own[at] for at in range(count)} for row, own in every.items()}
            if compared(known(group, 5))["row 0", "row 1"].verdict != "no detectable difference":
                false += 1
                break
    assert false / 200 <= 0.05


def test_a_noisy_row_leaves_the_pairs_of_the_others_as_they_are():
    """Measured in a quick run: one row's rounds were 12.4, 20.5 and 13.1."""
    quiet = {"a": rounds(26.5, 26.0, 26.2, 26.6), "b": rounds(21.2, 20.9, 21.0, 21.3)}
    quiet["c"] = rounds(24.1, 23.7, 23.9, 24.2)
    noisy = {**quiet, "wild": rounds(12.4, 20.5, 13.1, 16.0)}
    assert verdicts(quiet)["b"].verdict == verdicts(noisy)["b"].verdict == "slower"
    few = {row: rounds(100.0, 100.0 + at) for at, row in enumerate("abc")}
    assert len(compared(known({**few, "wild": rounds(50.0, 150.0)}))) == 12, "of two rounds none is called noisy"


def test_a_far_noisier_row_hides_no_difference_between_the_others():
    random, quiet = np.random.default_rng(6), ("row 2", "row 3", "row 4")
    groups = [with_one_faster(even(random, 5, 5, ONE_WILD), "row 1", 1.1) for _ in range(100)]
    pairs = [compared(known(group)) for group in groups]
    assert np.mean([found["row 1", row].low > 1 for found in pairs for row in quiet]) >= 0.9


def test_a_load_that_hit_one_round_makes_no_row_noisy():
    random, found = np.random.default_rng(7), []
    for _ in range(100):
        group = with_one_faster(even(random, 5, 5), "row 4", 0.8)
        group["row 4"][2] *= 0.75
        found.append(verdicts(group)["row 4"].verdict == "slower")
    assert np.mean(found) >= 0.7


def logs(*values):
    return {at: exp(value) for at, value in enumerate(values)}


def test_a_stretch_holds_most_rounds():
    """All of four; of five, one may lie outside."""
    still = logs(0.0, 0.0, 0.0, 0.0, 0.0)
    assert _stretch(logs(1.0, 2.0, 0.0, 10.0), still) == pytest.approx(10.0)
    assert _stretch(logs(1.0, 2.0, 0.0, 10.0, 5.0), still) == pytest.approx(5.0)
    assert _stretch(logs(9.0, 10.0, 0.0, 11.0, 12.0), still) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("error", "count", "noisier"), [(2.5, 4, set()), (2.5, 7, {"w"}), (3.0, 4, set()), (3.2, 4, {"w"})]
)
def test_a_row_is_far_noisier_by_its_variance_of_a_round(error, count, noisier):
    """Ten times the usual row's: (error of the mean)^2 x rounds."""
    group = known({"a": logs(0.0, 0.01, 0.0), "b": logs(0.0, 0.0, 0.0), "w": logs(0.0, 3.0, 1.0)})
    pairs = {("a", "b"): Centre(0.0, 1.0, 4, 3), ("a", "w"): Centre(0.0, error, count, 3)}
    pairs["b", "w"] = pairs["a", "w"]
    assert _far_noisier(group, pairs) == noisier
    noise = {("a", "b"): 1.0, ("a", "c"): 10.0, ("b", "c"): 10.0}
    assert (_beyond(noise, 10.0), _beyond(noise, 9.9)) == (set(), {"c"})


@pytest.mark.parametrize(
    ("found", "threshold", "left_open"),
    [
        (Interval(1.0, 1.0, 1.0, 1), 0.03, True),  # of one round nothing is known
        (Interval(1.0, 1.0, 1.0, 2), 0.03, False),
        (Interval(1.0, 0.5, 1.5, 2), 0.5, False),  # as tight as was asked for
        (Interval(1.0, 0.5, 1.5, 2), 0.49, True),
    ],
)
def test_what_is_wider_than_was_asked_for_is_open(found, threshold, left_open):
    assert _open(found, threshold) is left_open


@pytest.mark.parametrize(
    ("value", "high", "rounds", "threshold", "given_up"),
    [
        (1.0, exp(3.0), 5, 0.03, True),  # 3 x sqrt(5 / 50) / 2 is far more than 3 %
        (1.0, exp(3.0), 4, 0.03, False),  # too early to know the noise
        (1.0, exp(0.5), 50, exp(0.2) - 1, True),
        (1.0, exp(0.5), 50, exp(0.26) - 1, False),
        (2.0, 6.0, 50, 0.03, False),  # half of log 3 is less than log 2: a difference would show
    ],
)
def test_what_is_given_up_would_stay_too_wide_were_the_noise_half_as_large(value, high, rounds, threshold, given_up):
    assert _open(Interval(value, value / 2, high, rounds), threshold) is not given_up


def test_what_fifty_rounds_would_not_tell_is_given_up():
    wild, other = ({at: 100.0 * 1.4 ** (sign * (-1) ** at) for at in range(6)} for sign in (1, -1))
    begun = ({at: rates[at] for at in range(4)} for rates in (wild, other))
    assert open_questions(dict(zip("ab", begun, strict=True)), 0.02, 4) == {"a", "b"}, "too early to give up"
    assert open_questions({"a": wild, "b": other}, 0.02, 4) == set()
    assert open_questions({"a": wild, "b": other}, 0.9, 4) == {"a", "b"}
    assert open_questions({"a": wild}, 0.02, 4) == set()
