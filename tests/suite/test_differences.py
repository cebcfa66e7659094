"""Differences of means, with their intervals."""

import pytest

from suite.analysis.budget import Difference, apart


def test_the_means_of_two_groups_are_apart_by_student_s_interval() -> None:
    """As scipy.stats.ttest_ind of equal variances has it."""
    found = apart([1.0, 2.0, 4.0], [0.0, 1.0])
    assert found
    assert (found.value, found.low, found.high) == pytest.approx((1.8333333, -1.9792123, 5.6458790), abs=1e-6)
    assert found.of == 5
    found = apart([1.0, 3.0], [2.0])
    assert found
    assert (found.value, found.of) == (0.0, 3)
    assert -found.low == found.high == pytest.approx(22.0077922, abs=1e-6)
    assert Difference(2.0, 1.0, 3.0, 4).scaled(0.5) == Difference(1.0, 0.5, 1.5, 4)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [2.0]), ([], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], [])])
def test_too_few_values_are_not_apart(ours: list[float], theirs: list[float]) -> None:
    assert apart(ours, theirs) is None
