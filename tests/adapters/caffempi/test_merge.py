"""The merge rule on known start-ups, bandwidths and times."""

from itertools import pairwise

import pytest

from stagebench.adapters.caffempi.merge import Cost, fitted, group_of, merged
from stagebench.adapters.caffempi.net import Span

READY, SIZES = [1.0, 2.0, 3.0, 4.0], [100, 100, 100, 100]


def finished_s(ready_s, sizes, groups, cost):
    """Seconds after backward began at which the last of these groups has been exchanged (the paper's recursion)."""
    free = 0.0
    for group in groups:
        begin = max(free, ready_s[group[-1]])
        free = begin + cost.startup_s + cost.seconds_per_byte * sum(sizes[member] for member in group)
    return free


def test_a_free_start_up_merges_nothing_that_need_not_wait():
    assert merged(READY, SIZES, Cost(0.0, 0.001)) == [[0], [1], [2], [3]]


def test_a_start_up_longer_than_backward_merges_everything():
    assert merged(READY, SIZES, Cost(10.0, 0.0)) == [[0, 1, 2, 3]]


def test_a_layer_is_merged_when_it_is_ready_less_than_a_start_up_after_the_message_could_begin():
    # 0 could begin at 1.0 and 1 is ready 0.4 later (< 0.5): together. Then 2 is 1.6 after 1.4: alone.
    assert merged([1.0, 1.4, 3.0, 3.6], SIZES, Cost(0.5, 0.0)) == [[0, 1], [2], [3]]
    assert merged([1.0, 1.4, 3.0, 3.4], SIZES, Cost(0.5, 0.0)) == [[0, 1], [2, 3]]


def test_what_waits_for_a_busy_wire_is_merged():
    # 0 is on the wire from 1 to 11.1; 1, 2 and 3 are ready long before.
    assert merged(READY, SIZES, Cost(0.1, 0.1)) == [[0], [1, 2, 3]]


def test_a_group_grows_no_further_than_a_piece():
    # 1 and 2 fill one together, though 3 is ready before the wire is free.
    assert merged(READY, SIZES, Cost(0.1, 0.1), 200) == [[0], [1, 2], [3]]
    assert merged(READY, [10, 10, 200, 100], Cost(10.0, 0.0), 200) == [[0, 1, 2], [3]]


@pytest.mark.parametrize("startup", [0.0, 0.05, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("slope", [0.0, 0.001, 0.02])
def test_merging_is_never_slower_than_layer_by_layer_or_all_at_once(startup, slope):
    ready = [0.1, 0.15, 0.9, 1.0, 1.05, 2.4, 2.45, 3.0]
    sizes = [400, 10, 80, 5, 5, 60, 2, 1]
    cost = Cost(startup, slope)
    chosen = merged(ready, sizes, cost)
    assert [layer for group in chosen for layer in group] == list(range(8))
    ours = finished_s(ready, sizes, chosen, cost)
    assert ours <= finished_s(ready, sizes, [[i] for i in range(8)], cost) + 1e-12
    assert ours <= finished_s(ready, sizes, [list(range(8))], cost) + 1e-12


def test_the_recursion_waits_for_gradient_and_wire():
    # 0: 1 + .5 + 1 = 2.5; 1 waits for the wire: 4.0; 2 for its gradient: 9 + 1.5.
    assert finished_s([1.0, 2.0, 9.0], [100, 100, 100], [[0], [1], [2]], Cost(0.5, 0.01)) == pytest.approx(10.5)


def test_start_up_and_bandwidth_are_fitted_from_two_messages():
    cost = fitted(1000, 0.5 + 1000 * 1e-3, 9000, 0.5 + 9000 * 1e-3)
    assert cost == pytest.approx((0.5, 1e-3))
    assert fitted(1000, 2.0, 9000, 1.0) == Cost(2.0, 0.0), "noise never gives a negative bandwidth"


def test_a_group_is_one_stretch_of_memory_complete_with_its_first_layer():
    spans = [Span(0, 16), Span(16, 16), Span(16, 48), Span(48, 64)]
    group = group_of([3, 2, 0], spans)
    assert group == (0, [0, 2, 3], Span(0, 64))
    assert all(a.end == b.begin for a, b in pairwise(spans))
