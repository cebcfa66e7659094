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


@pytest.mark.parametrize(
    ("rows", "comm_only", "update", "backward", "hidden"),
    [
        # Ready after 1, 3 and 4 s; each takes 10 s on the link, the first from 1 s on: the last arrives at 31 s.
        (((1, 5), (2, 5), (1, 5)), 30, 0, None, 3),
        (((10, 5), (10, 5), (10, 5)), 3, 0, None, 2),  # a quick link: all but the first layer's gradient
        (((1, 5), (4, 0), (1, 5)), 4, 0, None, 2),  # a layer without parameters takes time and moves nothing
        # Backward ends at 2 s; arrivals at 11 and 21 s; the first update hides behind the second arrival.
        (((1, 5), (1, 5)), 20, 4, None, 1 + 2),
        (((5, 0), (1, 0), (0, 7)), 2, 1, None, 2),  # the end of backward hides nothing
        (((0, 7), (6, 0)), 2, 1, None, 0),
        # Timed one by one, they take half as long in their stage: complete after 5, 10 and 15 s.
        (((10, 5), (10, 5), (10, 5)), 3, 0, 15, 2),
        (((2, 5), (4, 5), (2, 5)), 30, 0, 4, 3),
        (((1, 0),), 1, 1, None, None),  # nothing is exchanged
        ((), 1, 1, None, None),
    ],
)
def test_what_can_be_hidden_of_an_exchange(rows, comm_only, update, backward, hidden):
    found = overlappable(layers(*rows), comm_only, update, **({"backward": backward} if backward else {}))
    assert found == (hidden if hidden is None else pytest.approx(hidden))


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
