"""What a trainer and a communicator ask of the group that `start` has joined."""

import pytest
from toy import ToyTrainer

from suite.worker.communicator import Communicator
from suite.worker.contract import Group, Joined
from suite.worker.trainer import Trainer
from tests.support.trainers import setup


class Ranks(Group):
    def __init__(self):
        self.asked = []

    def maximum(self, value):
        self.asked.append(value)
        return max(value, 3)

    def close(self):
        self.asked.append("closed")


class Exchanging(Communicator):
    def start(self):
        return Joined(0, 2, "toy", {})

    def exchange(self, operation, count, dtype="float32"):
        raise NotImplementedError


class Training(ToyTrainer):
    maximum, close = Trainer.maximum, Trainer.close


@pytest.mark.parametrize("kind", [Exchanging, Training])
def test_the_group_is_asked_for_the_largest_value_and_left_at_the_end(kind):
    ours = kind(setup(world=2))
    ours.close()
    ours.group = Ranks()
    assert ours.maximum(1.0) == 3.0
    ours.close()
    assert ours.group.asked == [1.0, "closed"]


def test_a_barrier_is_the_group_s_or_a_question_to_all():
    ours = Exchanging(setup(world=2))
    ours.group = Ranks()
    ours.barrier()
    assert ours.group.asked == [0.0]
