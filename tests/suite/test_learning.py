"""A training's records joined over ranks, and what is read off them."""

import pytest

from suite.analysis.learning import learnt
from suite.worker.messages import Epoch, Training


def rank(seconds, accuracies, losses, samples=100):
    epochs = [
        Epoch(train_s=each, test_s=0.0, samples=samples, steps=1, accuracy=accuracy, loss=losses[-1])
        for each, accuracy in zip(seconds, accuracies, strict=True)
    ]
    return Training(epochs, list(range(len(losses))), losses, [])


def test_an_epoch_and_an_opening_last_as_long_as_on_the_slowest_rank_and_a_target_may_be_missed():
    both = learnt([rank([2.0, 1.0], [0.5, 0.9], [2.0, 1.0]), rank([3.0, 0.5], [0.5, 0.9], [1.0, 0.0])], 0.9)
    assert [epoch.seconds for epoch in both.epochs] == [3.0, 1.0]
    assert both.epochs[0].rate == pytest.approx(200 / 3)
    assert both.losses == (1.5, 0.5)
    assert (both.best, both.seconds) == (0.9, 4.0)
    assert (both.target_epoch, both.target_seconds) == (2, 4.0)
    found = learnt([rank([1.0], [0.5], [2.0])], 0.9)
    assert (found.target_epoch, found.target_seconds) == (None, None)
    ranks = [rank([1.0], [0.5], [2.0])._replace(open_s=seconds) for seconds in (0.5, 3.0, None)]
    assert learnt(ranks[:2], 0.9).opening_seconds == 3.0
    assert learnt(ranks, 0.9).opening_seconds is None, "a rank did not keep it"
    staggered = [one._replace(loss_steps=[at]) for at, one in enumerate(ranks[:2])]
    assert learnt(staggered, 0.9).opening_seconds == 3.0


def test_energy_is_counted_until_the_target_is_reached():
    ranks = [rank([2.0, 1.0, 1.0], [0.5, 0.9, 0.95], [2.0, 1.0])]
    assert learnt(ranks, 0.9, [200.0, 100.0, 50.0].__getitem__).target_joules == 300.0
    assert learnt(ranks, 0.99, [200.0, 100.0, 50.0].__getitem__).target_joules is None
    assert learnt(ranks, 0.9, [200.0, None, 50.0].__getitem__).target_joules is None, "no counter could be read"
    assert learnt(ranks, 0.9).target_joules is None


def test_curves_are_compared_over_the_first_steps_and_laid_out_as_their_losses_came():
    one = learnt([rank([1.0], [0.5], [2.0] * 60)], 0.9)
    other = learnt([rank([1.0], [0.5], [2.0] * 49 + [2.5] + [9.0] * 10)], 0.9)
    assert one.distance(other) == pytest.approx(0.5)
    broken = learnt([rank([1.0], [0.5], [2.0, None])], 0.9)
    assert one.distance(broken) is None
    assert broken.losses == (2.0, None)
    fast, slow = rank([3.0], [0.5], [2.0, 1.0, 0.5]), rank([3.0], [0.5], [1.8])
    fast, slow = (
        each._replace(loss_steps=steps, loss_s=seconds)
        for each, steps, seconds in ((fast, (0, 1, 3), (0.5, 1.0, 2.0)), (slow, (2,), (1.5,)))
    )
    found = learnt([fast, slow], 0.9)
    assert (found.steps, found.losses, found.seconds_then) == ((0, 1, 2, 3), (2.0, 1.0, 1.8, 0.5), (0.5, 1.0, 1.5, 2.0))
