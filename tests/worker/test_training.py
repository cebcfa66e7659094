"""The pass `train`: real epochs of the reference on made-up digits; how a data set is cut in two; rates that change."""

import numpy as np
import pytest
import toy

from stagebench.suite.worker import case_parts, messages
from stagebench.suite.worker.case_parts import Schedule
from stagebench.suite.worker.contract import SGD, Unsupported
from stagebench.suite.worker.job import DataSet, MakeOracle, Prove, Train
from stagebench.suite.worker.sources import split
from stagebench.suite.worker.training import Training, epoch_ends
from tests.support import trainers
from tests.support.behind import Clock
from tests.support.errors import raising
from tests.support.jobs import READ_ONCE, graph


@pytest.fixture
def arrays(tmp_path):
    """Bright squares in ten places: a network learns them in seconds."""
    stream = np.random.RandomState(0)
    labels = np.arange(200) % 10
    images = stream.randint(0, 40, (200, 28, 28))
    for image, label in zip(images, labels):
        image[14 * (label // 5) :, 5 * (label % 5) : 5 * (label % 5) + 5] += 200
    path = tmp_path / "squares.npz"
    np.savez(str(path), images=np.clip(images, 0, 255).astype(np.uint8), labels=labels)
    return DataSet("arrays", str(path))


def test_epochs_are_trained_tested_and_reported(make_job, work, arrays):
    task = Train(graph(), case_parts.Training(3, 0.25), Schedule(), READ_ONCE, arrays)
    code, sent = work(make_job(task, batch=16, optimiser=SGD(0.02, 0.9, 0.0)))
    assert code == 0
    (found,) = (message for message in sent if isinstance(message, messages.Training))
    assert [epoch.steps for epoch in found.epochs] == [9, 10, 9]  # 150 samples: batches run across the borders
    assert [epoch.samples for epoch in found.epochs] == [144, 160, 144]
    assert found.loss_steps == list(range(28))
    assert found.losses[-1] < 0.2 * found.losses[0]
    assert found.epochs[-1].accuracy > 0.9
    assert found.epochs[-1].loss == found.losses[-1]
    assert all(epoch.train_s > 0 for epoch in found.epochs)
    assert found.open_s > 0
    assert len(found.loss_s) == len(found.losses)
    assert found.loss_s == sorted(found.loss_s)
    notes = {key: note for each in sent if isinstance(each, messages.Notes) for key, note in each.notes.items()}
    assert notes["tested"].endswith("50 samples to test with")
    assert not [each for each in sent if isinstance(each, messages.Pass)], "no speed beside it"
    (noise,), (memory,) = (messages.of_type(kind, sent) for kind in (messages.Noise, messages.Memory))
    assert memory.host_bytes > 10**7
    assert min(noise.reference_before_s + noise.reference_after_s) > 0
    if noise.train is not None:  # a system that counts
        assert noise.train.seconds >= sum(epoch.train_s for epoch in found.epochs)
        assert noise.train.seconds == pytest.approx(sum(epoch.host_use.seconds for epoch in found.epochs))


def learnt(trainer, samples, epochs, *more, **rule):
    """A training of numbers whose input is opened by nobody."""
    trainer.open_input = getattr(trainer, "opens", lambda source: None)
    training = Training(trainer, graph(), lambda **progress: None)
    return training.run(toy.Numbers(samples), toy.Numbers(5), epochs, *more, **rule)


def test_the_time_of_a_loss_is_of_training_without_the_tests_between_epochs():
    found = learnt(toy.ToyTrainer(trainers.setup(batch=5, knobs={"sleep": {"step": 0.02, "forward": 0.2}})), 20, 2)
    assert [epoch.steps for epoch in found.epochs] == [4, 4]
    assert [epoch.test_s >= 0.2 for epoch in found.epochs] == [True, True]
    times, ends = found.loss_s, np.cumsum([epoch.train_s for epoch in found.epochs])
    assert (np.diff([0.0, *times]) >= 0.02).all()
    assert times[3] <= ends[0] <= times[4] <= times[7] <= ends[1]


def test_opening_the_input_is_timed_and_is_in_no_epoch(monkeypatch):
    clock, trainer = Clock(), toy.ToyTrainer(trainers.setup(batch=5))
    monkeypatch.setattr("stagebench.suite.worker.training.time", clock)
    trainer.opens, trainer.step = (lambda source: clock.sleep(30.0)), (lambda batch: clock.sleep(0.5))
    found = learnt(trainer, 20, 2)
    assert found.open_s == 30.0
    assert [epoch.train_s for epoch in found.epochs] == [2.0, 2.0]
    assert found.loss_s[0] == 0.5


class Joint(toy.ToyTrainer):
    """One of two workers, of whom the other takes three steps in this one's time: four are two of the joined batch."""

    def joint_steps(self):
        return 2 * self.calls.count("step")


def test_an_epoch_of_workers_that_wait_for_nobody_ends_when_its_samples_have_been_seen():
    found = learnt(Joint(trainers.setup(batch=5)), 35, 2)
    assert [epoch.steps for epoch in found.epochs] == [4, 3], "7 and 14 steps of the joined batch"
    assert [epoch.samples for epoch in found.epochs] == [20, 15]
    assert found.loss_steps == [0, 2, 4, 6, 8, 10, 12]


def test_training_stops_after_epochs_without_a_better_accuracy(monkeypatch):
    accuracies = iter([0.5, 0.7, 0.7, 0.6, 0.9, 0.9])
    monkeypatch.setattr(Training, "_accuracy", lambda self, batches: next(accuracies))
    found = learnt(toy.ToyTrainer(trainers.setup(batch=5)), 20, 6, patience=2)
    assert [epoch.accuracy for epoch in found.epochs] == [0.5, 0.7, 0.7, 0.6]


def test_synthetic_data_teach_nothing(make_job, work):
    code, sent = work(make_job(Train(graph(), case_parts.Training(1, 0.25), Schedule(), READ_ONCE)))
    assert code == 1
    assert (sent[-1].kind, "synthetic" in sent[-1].message) == ("unsupported", True)


def test_both_parts_are_the_whole_always_the_same_and_never_empty():
    first, second = split(toy.Numbers(50), 0.2)
    again, _ = split(toy.Numbers(50), 0.2)
    seen = [int(part.sample(index)[0].max()) for part in (first, second) for index in range(len(part))]
    assert (len(first), len(second), sorted(seen)) == (40, 10, list(range(50)))
    assert [again.sample(index)[1] for index in range(40)] == [first.sample(index)[1] for index in range(40)]
    assert {second.sample(index)[1] for index in range(10)} == {0, 1, 2}
    assert first.classes == 3
    with raising(ValueError, 0.01, "numbers", 0, 9):
        split(toy.Numbers(9), 0.01)


def test_epochs_end_where_all_samples_have_been_seen_by_a_trainer_that_can_be_tested():
    assert epoch_ends(100, 10, 1, 3) == [10, 20, 30]
    assert epoch_ends(101, 16, 2, 4) == [3, 6, 9, 12]  # 50 samples a rank
    assert epoch_ends(3, 16, 1, 1) == [1]
    trainer = toy.ToyTrainer(trainers.setup())
    with raising(Unsupported, "ToyTrainer", "batch_norm"):
        Training(trainer, graph("resnet50"), print)
    Training(trainer, graph(), print)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule(), [1.0] * 9),
        (Schedule(1.0), [1 / 3, 2 / 3, 1.0] + [1.0] * 6),
        (Schedule(decay="steps"), [1.0] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001]),
        (Schedule(decay="linear"), [1 - step / 9 for step in range(9)]),
        (Schedule(1.0, "cosine"), [1 / 3, 2 / 3, 1.0, 1.0, 0.93301, 0.75, 0.5, 0.25, 0.06699]),
        (Schedule(100.0, "cosine"), [(step + 1) / 9 for step in range(9)]),
    ],
)
def test_a_rate_rises_over_the_warm_up_and_falls_by_its_decay(schedule, factors):
    assert [schedule.factor(step, 9, 3.0) for step in range(9)] == pytest.approx(factors, abs=1e-5)
    assert schedule.changing == (schedule != Schedule())


def test_a_training_sets_the_rate_before_every_step():
    rates, trainer = [], toy.ToyTrainer(trainers.setup(batch=5))
    trainer.set_learning_rate = rates.append
    learnt(trainer, 20, 2, Schedule(0.5, "linear"))
    rate = trainer.setup.optimiser.lr
    assert rates == pytest.approx([rate * factor for factor in (1 / 2, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6)])
    learnt(trainer, 20, 2)
    assert len(rates) == 8, "one rate throughout is never set"


def test_a_proof_of_changing_rates_catches_who_keeps_one(make_job, work, tmp_path):
    oracle, errors = tmp_path / "oracle", {}
    oracle.mkdir()
    assert work(make_job(MakeOracle(graph(), str(oracle), 4), changing_rate=True))[0] == 0
    for changing in (True, False):
        code, sent = work(make_job(Prove(graph(), str(oracle), 4), changing_rate=changing))
        assert code == 0
        (proof,) = messages.of_type(messages.Proof, sent)
        errors[changing] = max(proof.errors["native movement"].values())
    assert errors[True] < 1e-6
    assert errors[False] > 0.1
