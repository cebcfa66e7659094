"""What every trainer has of the suite: its group, knobs that are left open, seeds of dropout, staleness."""

import pytest
from toy import ToyTrainer

from stagebench.suite.worker.communicator import Communicator
from stagebench.suite.worker.contract import Group, Joined, chosen, dropout_seed
from stagebench.suite.worker.staleness import Staleness
from stagebench.suite.worker.trainer import Trainer
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
    if kind is Exchanging:
        ours.barrier()
        assert ours.group.asked[2:] == [0.0], "a barrier is a question to all"


@pytest.mark.parametrize("knobs", [{}, {"layout": "auto"}])
@pytest.mark.parametrize(("tuning", "expected"), [("default", "NHWC"), ("tuned", "NCHW")])
def test_the_tuning_decides_what_is_left_open_alone(knobs, tuning, expected):
    asked = setup(knobs=knobs, tuning=tuning)
    assert chosen(asked, "layout", default="NHWC", tuned="NCHW") == expected
    assert chosen(asked, "microbatches", default=4) == 4, "without a tuned value the default holds"
    assert chosen(asked, "bucket", default=25, tuned=None) == (None if tuning == "tuned" else 25), "None is a value"
    for value in ("NHWC", False, 0, None):
        assert chosen(setup(knobs={"layout": value}, tuning=tuning), "layout", default=1, tuned=2) is value


def test_every_seed_device_and_layer_has_masks_of_its_own_that_every_framework_takes():
    asked = [(seed, device, layer) for seed in range(20) for device in range(20) for layer in ("", "d6", "d7")]
    found = [dropout_seed(*each) for each in asked]
    assert len(set(found)) == len(asked)
    assert found == [dropout_seed(*each) for each in asked]
    found = [dropout_seed(seed, device) for seed in (0, 1, 2**40, -1) for device in (0, 1, 10**6)]
    assert all(isinstance(each, int) and 0 <= each < 2**31 for each in found)
    assert dropout_seed(1, 0) == 1122690969


def test_staleness_is_what_others_did_between_pull_and_push_since_it_began():
    staleness = Staleness(updates=7)
    staleness.begin()
    for updates in (8, 11, 12):  # alone, two others in between, alone
        staleness.exchanged(updates)
    assert staleness.notes() == {"staleness": {"mean": 2 / 3.0, "max": 2, "steps": 3}}
    staleness = Staleness()
    staleness.exchanged(5)
    assert staleness.notes() == {}
    staleness.begin()
    assert staleness.notes() == {}
    staleness.exchanged(6)
    assert staleness.notes() == {"staleness": {"mean": 0.0, "max": 0, "steps": 1}}
    for missed in (3, 1):
        staleness.begin()
        staleness.missed(missed)
    assert staleness.notes() == {"staleness": {"mean": 1.0, "max": 1, "steps": 1}}
