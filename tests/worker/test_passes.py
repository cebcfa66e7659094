"""The five passes: what each calls, in which order, and what its record holds."""

import pytest
import toy

from suite.worker.contract import Unsupported
from suite.worker.feed import ResidentFeed, StreamFeed, share, synthetic
from suite.worker.loop import Loop
from suite.worker.passes import READ_AHEAD, Passes
from tests.support import trainers
from workloads.networks import by_name

STEPS = 5 + 3  # of the warm-up and of the measurement

ITERATIONS = {
    "native": ["next_batch", "to_device", "step"],
    "compute_only": ["next_batch", "to_device", "step_alone"],
    "staged": ["next_batch", "to_device", "forward", "backward", "maximum", "communicate", "update"],
    "io_only": ["next_batch"],
}


def streamed(trainer):
    return StreamFeed(trainer, toy.Unread())


def passes(sampling, feed=streamed, **changes):
    trainer = toy.ToyTrainer(trainers.setup(**changes))
    made = Passes(trainer, feed(trainer), Loop(trainer, sampling._replace(steady=1e9), lambda **_: None))
    del trainer.calls[:]
    return trainer, made


def resident(trainer):
    return ResidentFeed(trainer, synthetic(by_name()["mnist_small"].graph(), 4, 1))


@pytest.mark.parametrize("name", sorted(ITERATIONS))
def test_what_is_called(sampling, name):
    trainer, made = passes(sampling, world=2)
    record = made.run(name)
    if name == "io_only":  # what had been read ahead is read away first
        assert trainer.calls[:READ_AHEAD] == ["next_batch"] * READ_AHEAD
        del trainer.calls[:READ_AHEAD]
    # The loop's own collective calls stand between warm-up and measurement.
    once = ITERATIONS[name]
    length = len(once)
    assert trainer.calls[: 5 * length] == once * 5
    assert trainer.calls[-3 * length :] == once * 3
    assert set(trainer.calls[5 * length : -3 * length]) == {"maximum"}
    assert record.name == name
    assert record.samples == 3 * 4
    assert (len(record.warmup_s), len(record.step_s)) == (5, 3)
    assert record.steady is True


@pytest.mark.parametrize(("readers", "prefetch", "ahead"), [(0, 2, READ_AHEAD), (2, 2, READ_AHEAD), (8, 4, 40)])
def test_what_readers_have_ahead_is_read_away_before_they_are_timed(sampling, readers, prefetch, ahead):
    trainer, made = passes(sampling, readers=readers, prefetch=prefetch)
    made.run("io_only")
    assert trainer.calls.count("next_batch") == ahead + STEPS


def test_communication_alone_uses_real_gradients_and_leaves_none(sampling):
    trainer, made = passes(sampling, world=2)
    record = made.run("comm_only")
    assert trainer.calls[:4] == ["next_batch", "to_device", "forward", "backward"]
    assert trainer.calls[-1] == "update"
    assert trainer.calls.count("communicate") == STEPS
    assert trainer.calls.count("forward") == 1
    assert "loss" not in record


def test_records_hold_loss_and_waiting_for_input(sampling):
    _, made = passes(sampling, knobs={"loss": 0.25, "sleep": {"next_batch": 0.003, "step": 0.003}})
    record = made.run("native")
    assert record.loss == 0.25
    assert len(record.io_s) == 3
    for waited, step in zip(record.io_s, record.step_s):
        assert 0.003 <= waited <= step - 0.003


def test_resident_data_go_to_the_device_once(sampling):
    trainer, made = passes(sampling, feed=resident)
    made.run("native")
    assert [call for call in trainer.calls if call != "maximum"] == ["step"] * STEPS


@pytest.mark.parametrize(
    ("name", "feed", "world", "reason"),
    [
        ("native", resident, 1, None),
        ("staged", resident, 1, None),
        ("compute_only", resident, 1, "one device exchanges nothing"),
        ("comm_only", resident, 1, "one device exchanges nothing"),
        ("comm_only", resident, 2, None),
        ("io_only", resident, 2, "synthetic data are not read"),
        ("io_only", streamed, 1, None),
    ],
)
def test_what_has_nothing_to_measure_is_skipped(sampling, name, feed, world, reason):
    assert passes(sampling, feed=feed, world=world)[1].skipped(name) == reason


def test_one_rank_needs_no_barrier_before_communication(sampling):
    trainer, made = passes(sampling, feed=resident)
    made.run("staged")
    stages = [call for call in trainer.calls if call != "maximum"]
    assert stages == ["forward", "backward", "communicate", "update"] * STEPS
    assert trainer.calls[: 5 * 4] == stages[: 5 * 4]  # no "maximum" among them


def test_a_trainer_that_cannot_leave_its_exchange_out_says_so():
    class Plain(toy.ToyTrainer):
        step_alone = toy.Trainer.step_alone

    Plain(trainers.setup()).step_alone(None)
    with pytest.raises(Unsupported, match="Plain cannot leave its exchange out"):
        Plain(trainers.setup(world=2)).step_alone(None)


def test_ranks_share_one_synthetic_batch():
    whole = synthetic(by_name()["mnist_small"].graph(), 8, 5)
    assert whole.images.shape == (8, 1, 28, 28)
    assert whole.images.dtype == "float32"
    assert whole.labels.dtype == "int64"
    assert set(whole.labels) <= set(range(10))
    parts = [share(whole, rank, 4) for rank in range(2)]
    assert (parts[1].images == whole.images[4:]).all()
    assert [len(part.labels) for part in parts] == [4, 4]
    again = synthetic(by_name()["mnist_small"].graph(), 8, 5)
    assert (again.images == whole.images).all()
    assert (synthetic(by_name()["mnist_small"].graph(), 8, 6).images != whole.images).any()


class PartToy(toy.ToyTrainer):
    """Holds a part of a network: half of its forward and a quarter of its backward is waiting."""

    def bubble(self):
        return {"forward": 0.002, "backward": 0.001}


def test_waiting_for_other_parts_is_a_stage_of_its_own(sampling):
    sleeping = {"sleep": {"forward": 0.004, "backward": 0.004}}
    trainer = PartToy(trainers.setup(world=4, model_parallel_size=2, batch=8, knobs=sleeping))
    made = Passes(trainer, streamed(trainer), Loop(trainer, sampling._replace(steady=1e9), lambda **_: None))
    record = made.run("staged")
    stages = record.stage_s
    assert stages["bubble"] == pytest.approx([0.003] * 3)
    assert min(stages["forward"]) >= 0.002
    assert sum(map(sum, stages.values())) == pytest.approx(record.wall_s, rel=0.05)
    assert record.samples == 3 * 8 / 2, "a network's batch counts once over its ranks"


def test_without_parts_there_is_no_such_stage(sampling):
    _, made = passes(sampling, world=2)
    assert "bubble" not in made.run("staged").stage_s


@pytest.mark.parametrize(("rank", "replica"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_ranks_in_a_row_hold_one_network(rank, replica):
    setup = trainers.setup(rank=rank, world=4, model_parallel_size=2)
    assert (setup.replica, setup.replicas) == (replica, 2)
    alone = trainers.setup(rank=rank, world=4)
    assert (alone.replica, alone.replicas) == (rank, 4)
