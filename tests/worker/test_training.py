"""The pass `train`: real epochs of the reference on made-up digits; how a data set is cut in two."""

import numpy as np
import pytest
import toy

from suite.worker.contract import Unsupported
from suite.worker.sources import Source
from suite.worker.split import split
from suite.worker.training import Training, epoch_ends
from tests.support import trainers
from workloads.catalogue import by_name


class Numbers(Source):
    """Sample i is the number i, of class i modulo 3."""

    name, classes = "numbers", 3

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def sample(self, index):
        return np.full((1, 2, 2), index, dtype=np.float32), index % 3


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
    return {"kind": "arrays", "path": str(path)}


def test_epochs_are_trained_tested_and_told(make_job, work, arrays):
    training = {"epochs": 3, "held_out": 0.25, "target": 0.9}
    code, messages = work(make_job(data=arrays, passes=["train"], training=training, batch=16, lr=0.02))
    assert code == 0
    (record,) = (message["record"] for message in messages if message["type"] == "training")
    assert [row["steps"] for row in record["epochs"]] == [9, 10, 9]  # 150 samples: batches run across the borders
    assert [row["samples"] for row in record["epochs"]] == [144, 160, 144]
    assert record["loss_steps"] == list(range(28))
    assert record["losses"][-1] < 0.2 * record["losses"][0]
    assert record["epochs"][-1]["accuracy"] > 0.9
    assert record["epochs"][-1]["loss"] == record["losses"][-1]
    assert all(row["seconds"] > 0 for row in record["epochs"])
    assert len(record["loss_seconds"]) == len(record["losses"])
    assert record["loss_seconds"] == sorted(record["loss_seconds"])
    notes = {key: told for message in messages if message["type"] == "notes" for key, told in message["notes"].items()}
    assert notes["tested"].endswith("50 samples to test with")
    assert not [message for message in messages if message["type"] == "pass"], "no speed beside it"


def test_the_time_of_a_loss_is_of_training_without_the_tests_between_epochs(tmp_path):
    trainer = toy.ToyTrainer(trainers.setup(batch=5, knobs={"sleep": {"step": 0.02, "forward": 0.2}}))
    trainer.open_input = lambda source: None
    graph = by_name()["mnist_small"].graph()
    record = Training(trainer, graph, lambda **told: None).run(Numbers(20), Numbers(5), 2)
    assert [row["steps"] for row in record["epochs"]] == [4, 4]
    assert [row["test_seconds"] >= 0.2 for row in record["epochs"]] == [True, True]
    times, ends = record["loss_seconds"], np.cumsum([row["seconds"] for row in record["epochs"]])
    assert (np.diff([0.0, *times]) >= 0.02).all()
    assert times[3] <= ends[0] <= times[4] <= times[7] <= ends[1]


def test_synthetic_data_teach_nothing(make_job, work):
    training = {"epochs": 1, "held_out": 0.25, "target": 0.9}
    code, messages = work(make_job(passes=["train"], training=training))
    assert code == 1
    assert (messages[-1]["kind"], "synthetic" in messages[-1]["message"]) == ("unsupported", True)


def test_both_parts_are_the_whole_and_always_the_same():
    first, second = split(Numbers(50), 0.2)
    again, _ = split(Numbers(50), 0.2)
    seen = [int(part.sample(index)[0].max()) for part in (first, second) for index in range(len(part))]
    assert (len(first), len(second), sorted(seen)) == (40, 10, list(range(50)))
    assert [again.sample(index)[1] for index in range(40)] == [first.sample(index)[1] for index in range(40)]
    assert {second.sample(index)[1] for index in range(10)} == {0, 1, 2}
    assert first.classes == 3


def test_an_empty_half_is_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"holding out 0.01 of numbers leaves one half empty \(0 of 9 samples\)"):
        split(Numbers(9), 0.01)


def test_every_epoch_ends_where_all_samples_have_been_seen():
    assert epoch_ends(100, 10, 1, 3) == [10, 20, 30]
    assert epoch_ends(101, 16, 2, 4) == [3, 6, 9, 12]  # 50 samples a rank
    assert epoch_ends(3, 16, 1, 1) == [1]


def test_a_trainer_that_cannot_tell_use_from_training_says_so():
    trainer = toy.ToyTrainer(trainers.setup())
    with pytest.raises(Unsupported, match=r"ToyTrainer does not tell training from use .* batch_norm asks for"):
        Training(trainer, by_name()["resnet50"].graph(), print)
    Training(trainer, by_name()["mnist_small"].graph(), print)
