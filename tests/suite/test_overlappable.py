"""What of an exchange can be hidden, on figures that can be done in the head."""

import pytest

from suite.analysis.overlappable import overlappable
from suite.worker.contract import LayerTimes


def layers(*rows):
    times = {"forward_s": 0.0, "communication_s": 0.0}
    ready, made = 0.0, []
    for seconds, size in reversed(rows):
        ready += seconds
        made.append(LayerTimes(layer="", kind="", backward_s=seconds, bytes=size, ready_s=ready, **times))
    return made[::-1]


def test_a_slow_link_hides_what_backward_has_left_after_the_first_gradient():
    # Ready after 1, 3 and 4 s; each takes 10 s on the link, the first from 1 s on: the last arrives at 31 s.
    assert overlappable(layers((1, 5), (2, 5), (1, 5)), comm_only=30, update=0) == pytest.approx(3)


def test_a_quick_link_hides_all_but_the_first_layers_gradient():
    assert overlappable(layers((10, 5), (10, 5), (10, 5)), comm_only=3, update=0) == pytest.approx(2)


def test_a_layer_without_parameters_takes_time_and_moves_nothing():
    assert overlappable(layers((1, 5), (4, 0), (1, 5)), comm_only=4, update=0) == pytest.approx(2)


def test_updates_hide_too_but_not_the_last_ones():
    # Backward ends at 2 s; arrivals at 11 and 21 s; the first update hides behind the second arrival.
    assert overlappable(layers((1, 5), (1, 5)), comm_only=20, update=4) == pytest.approx(1 + 2)


def test_the_end_of_backward_hides_nothing():
    assert overlappable(layers((5, 0), (1, 0), (0, 7)), comm_only=2, update=1) == pytest.approx(2)
    assert overlappable(layers((0, 7), (6, 0)), comm_only=2, update=1) == pytest.approx(0)


def test_nothing_exchanged_is_no_figure():
    assert overlappable(layers((1, 0)), comm_only=1, update=1) is None
    assert overlappable([], comm_only=1, update=1) is None


def test_layers_timed_one_by_one_are_scaled_to_their_stage():
    # Half as long as by themselves: complete after 5, 10 and 15 s.
    assert overlappable(layers((10, 5), (10, 5), (10, 5)), 3, 0, backward=15) == pytest.approx(2)
    assert overlappable(layers((2, 5), (4, 5), (2, 5)), 30, 0, backward=4) == pytest.approx(3)


def test_gradients_leave_when_they_are_complete_whatever_the_layers_order():
    first, second = layers((1, 5), (1, 5))
    swapped = [first._replace(ready_s=1.0), second._replace(ready_s=2.0)]
    assert overlappable(swapped, comm_only=20, update=4) == overlappable([first, second], comm_only=20, update=4)


def test_a_gradient_that_nobody_saw_complete_is_no_figure():
    first, second = layers((1, 5), (1, 5))
    assert overlappable([first, second._replace(ready_s=None)], comm_only=1, update=1) is None


def test_what_passes_between_layers_makes_no_negative_overlap():
    """The last gradient is complete after 12 s, though the layers take 8 s: a stage of 8 s ends with it."""
    first, second = layers((4, 5), (4, 5))
    slow = [first._replace(ready_s=12.0), second._replace(ready_s=6.0)]
    assert overlappable(slow, comm_only=2, update=0, backward=8) == pytest.approx(1)
    late = [one._replace(ready_s=12.0) for one in slow]
    assert overlappable(late, comm_only=2, update=0, backward=8) == 0.0
    assert overlappable(slow, comm_only=-1, update=0, backward=8) is None
