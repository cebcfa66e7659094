"""The passes: what each calls, in which order, and what its record holds."""

import re
import time
from itertools import groupby

import numpy as np
import pytest
import toy
import wires

from stagebench.suite.worker import common_clock
from stagebench.suite.worker.contract import Unsupported
from stagebench.suite.worker.feed import READ_AHEAD, RESIDENT, ResidentFeed, own_synthetic, share, synthetic
from stagebench.suite.worker.loop import BLOCK_STEPS, FIRST, RESUMED, ROUNDS
from stagebench.suite.worker.passes import STAGED_ROUNDS
from tests.support import jobs, trainers
from tests.support.behind import BehindTrainer
from tests.support.errors import raising

pytestmark = pytest.mark.usefixtures("settled")
WARMUP = 6
STEPS = WARMUP + 3  # and of the measurement
READS = ("native", "staged", "io_only")

ITERATIONS = {"native": ["next_batch", "to_device", "step"], "io_only": ["next_batch"]}


def passes(sampling, feed=toy.streamed, **changes):
    trainer = toy.ToyTrainer(trainers.setup(**changes))
    made = toy.passes_of(trainer, sampling, feed)
    del trainer.calls[:]
    return trainer, made


def trimmed(calls):
    """Without the questions before the first step and after the last: the clock in common is agreed there."""
    calls = list(calls)
    while calls[0] == "maximum":
        calls.pop(0)
    while calls[-1] == "maximum":
        calls.pop()
    return calls


def resident(trainer):
    return ResidentFeed(trainer, own_synthetic(jobs.graph(), 4, 1, 0))


@pytest.mark.parametrize("name", sorted(ITERATIONS))
def test_what_is_called(sampling, name):
    trainer, made = passes(sampling, world=2)
    record = made.run(name)
    assert trainer.calls[:READ_AHEAD] == ["next_batch"] * READ_AHEAD  # what had been read ahead is read away first
    del trainer.calls[:READ_AHEAD]
    # The loop's own collective calls stand between warm-up and measurement.
    once, calls = ITERATIONS[name], trimmed(trainer.calls)
    length = len(once)
    assert calls[: WARMUP * length] == once * WARMUP
    assert calls[-3 * length :] == once * 3
    between = [call for call in calls[WARMUP * length : -3 * length] if call != "maximum"]
    if name != "io_only":  # what was read ahead while the first step was compiled
        untimed = [call for call in once * RESUMED if call != "maximum"]
        assert between[-len(untimed) :] == untimed
        del between[-len(untimed) :]
        assert 2 <= len(between) <= READ_AHEAD
        assert set(between) == {"next_batch"}
        between = []
    assert between == []
    assert record.name == name
    assert record.samples == 3 * 4
    assert (len(record.warmup_s), len(record.step_s)) == (WARMUP, 3)
    assert record.steady is True


def test_staged_iterations_take_turns_with_native_steps(sampling):
    trainer, made = passes(sampling, world=2)
    record = made.run("staged")
    letters = {"next_batch": "i", "to_device": "h", "maximum": "m"}
    calls = "".join(letters.get(call, call[0]) for call in trainer.calls)
    iterations = re.findall("ih(s|fbmcu)", calls)
    block = len(record.step_s) // STAGED_ROUNDS
    turns = [(steps, len([*equal])) for steps, equal in groupby(iterations)]
    there, back = RESUMED + block, RESUMED + block
    assert turns == [("fbmcu", WARMUP), ("s", BLOCK_STEPS + there), ("fbmcu", there + back), ("s", back)]
    assert (len(record.warmup_s), record.steady) == (WARMUP, True)
    assert len(record.step_s) == len(record.stage_s["forward"]) >= BLOCK_STEPS * STAGED_ROUNDS
    assert [len(record.pairs_s), len(record.spans_s)] == [STAGED_ROUNDS] * 2
    assert record.samples == 4 * len(record.step_s)
    stages = sum(map(sum, record.stage_s.values()))
    assert stages <= record.wall_s, "the wait for other ranks before a block's first timed step counts in no stage"


@pytest.mark.parametrize(("readers", "prefetch", "ahead"), [(0, 2, READ_AHEAD), (2, 2, READ_AHEAD), (8, 4, 40)])
def test_what_readers_have_ahead_is_read_away_before_they_are_timed(sampling, readers, prefetch, ahead):
    for name in READS:
        trainer, made = passes(sampling, readers=readers, prefetch=prefetch)
        made.run(name)
        calls = [call for call in trainer.calls if call != "maximum"]
        assert calls[:ahead] == ["next_batch"] * ahead
        if name == "io_only":
            assert trainer.calls.count("next_batch") == ahead + STEPS
        else:
            assert calls[ahead : ahead + 2] == ["next_batch", "to_device"]


def test_communication_alone_uses_real_gradients_and_leaves_none(sampling):
    trainer, made = passes(sampling, world=2)
    record = made.run("comm_only")
    begin = ["next_batch"] * RESIDENT + ["to_device"] * RESIDENT
    calls = [call for call in trainer.calls if call != "maximum"]
    assert calls[: 2 * RESIDENT + 2] == [*begin, "forward", "backward"]
    for before, call, after in zip(calls[2 * RESIDENT :], calls[2 * RESIDENT + 1 :], calls[2 * RESIDENT + 2 :]):
        if call == "communicate":
            assert before in ("backward", "communicate")
            assert after in ("communicate", "update")
    assert calls.count("communicate") == FIRST + len(record.step_s) + ROUNDS  # one untimed a block
    assert "loss" not in record
    assert len(record.pairs_s) == ROUNDS


def test_the_exchange_takes_turns_with_steps_that_have_it_and_steps_that_do_not(behind):
    found, exchange, trainer = behind("compute_only", "comm_only", world=2, alone_s=0.5, exchange_s=0.2)
    calls = [call for call in trainer.calls if call in ("step", "step_alone", "communicate")]
    del calls[: calls.index("step")]  # the first steps of the others
    there = ["step"] * 3 + ["step_alone"] * 3 + ["communicate"] * 3  # the first of each is not timed
    assert calls[2:] == (there + there[::-1]) * 2
    assert (exchange.name, exchange.loss) == ("comm_only", None)
    assert [alone for _, alone in exchange.pairs_s] == pytest.approx([0.5] * ROUNDS)
    assert [native for native, _ in exchange.pairs_s] == [native for native, _ in found.pairs_s]


def test_what_drifts_is_not_taken_for_hidden_communication(behind):
    """Of 0.5 s 0.2 s are exposed: 0.3 s are hidden, on a machine that gets slower by a hundredth each second."""
    how = {"step_s": 1.0, "exchange_s": 0.2, "alone_s": 0.5, "drift": 0.01}
    found, exchange, _ = behind("compute_only", "comm_only", world=2, **how)
    hidden = [alone - exposed for (_, alone), exposed in zip(exchange.pairs_s, differences(found))]
    slower = sum(native for native, _ in found.pairs_s) / len(found.pairs_s) / 1.2
    assert slower > 1.1, "the machine has drifted"
    assert sum(hidden) / len(hidden) == pytest.approx(0.3 * slower, rel=0.1)


def test_an_exchange_is_measured_though_the_step_cannot_leave_it_out(sampling):
    class Bound(toy.ToyTrainer):
        step_alone = toy.Trainer.step_alone

    Bound(trainers.setup()).step_alone(None)
    trainer = Bound(trainers.setup(world=2))
    made = toy.passes_of(trainer, sampling, resident, ("compute_only", "comm_only"))
    with raising(Unsupported, "Bound"):
        made.run("compute_only")
    assert len(made.run("comm_only").pairs_s) == ROUNDS


@pytest.mark.parametrize(("batch_s", "waits"), [(0.3, [5.1]), (1.0, [10.0, 10.0])])
def test_readers_that_are_slow_are_waited_for_until_their_queue_is_full(monkeypatch, batch_s, waits):
    slept = []
    monkeypatch.setattr("stagebench.suite.worker.feed.time.sleep", slept.append)
    feed = toy.streamed(toy.ToyTrainer(trainers.setup()))
    feed._batch_s = batch_s
    feed.fill()
    feed.fill()  # a queue that was filled stays full
    assert slept == pytest.approx(waits)


def test_resident_steps_begin_when_readers_have_read_ahead(behind):
    """A queue of four batches takes 1.2 s to fill: without waiting, the readers would work beside the next 12 steps."""
    found, trainer = behind("resident", step_s=0.1, read_s=0.3, ahead=4)
    before = [tuple(trainer.calls[at - 2 : at]) for at, call in enumerate(trainer.calls) if call == "step"]
    busy = [beside for calls, beside in zip(before, trainer.beside) if calls != ("next_batch", "to_device")]
    assert busy[FIRST:] == [0] * (len(found.step_s) + ROUNDS)  # one untimed a block


def test_records_hold_loss_and_waiting_for_input(sampling):
    _, made = passes(sampling, knobs={"loss": 0.25, "sleep": {"next_batch": 0.003, "step": 0.003}})
    record = made.run("native")
    assert record.loss == 0.25
    assert len(record.io_s) == 3
    for waited, step in zip(record.io_s, record.step_s):
        assert 0.003 <= waited <= step - 0.003


def test_resident_data_go_to_the_device_once_and_take_turns(sampling):
    trainer, made = passes(sampling, feed=resident)
    made.run("native")
    assert [call for call in trainer.calls if call != "maximum"] == ["step"] * STEPS
    trainer = toy.ToyTrainer(trainers.setup())
    feed = resident(trainer)
    seen = [feed.place(feed.read()).inputs[0, 0, 0, 0] for _ in range(2 * RESIDENT)]
    assert len(set(seen)) == RESIDENT
    assert seen[:RESIDENT] == seen[RESIDENT:]


@pytest.mark.parametrize(
    ("name", "feed", "world", "reason"),
    [
        ("native", resident, 1, None),
        ("staged", resident, 1, None),
        ("compute_only", resident, 1, "one device exchanges nothing"),
        ("comm_only", resident, 1, "one device exchanges nothing"),
        ("comm_only", resident, 2, None),
        ("io_only", resident, 2, "synthetic data are not read"),
        ("io_only", toy.streamed, 1, None),
        ("resident", resident, 1, "synthetic data are not read"),
        ("resident", toy.streamed, 1, None),
    ],
)
def test_what_has_nothing_to_measure_is_skipped(sampling, name, feed, world, reason):
    assert passes(sampling, feed=feed, world=world)[1].skipped(name) == reason


@pytest.mark.parametrize("one_kernel", [True, False])
def test_ranks_say_when_the_staged_steps_were_on_one_clock(sampling, monkeypatch, one_kernel):
    monkeypatch.setattr(common_clock, "is_one_kernel", lambda maximum: one_kernel)
    shared = wires.Threads(2)

    def live(rank):
        trainer = toy.ToyTrainer(trainers.setup(rank=rank, world=2, knobs={"sleep": {"update": 0.003}}))
        trainer.maximum = lambda value: max(shared.exchange(rank, value))
        return toy.passes_of(trainer, sampling).run("staged")

    began = time.perf_counter()
    one, other = toy.together(2, live)
    assert one.clock_error_s == other.clock_error_s
    assert (one.clock_error_s == 0.0) is one_kernel
    times = [began, *(moment for span in one.spans_s for moment in span), time.perf_counter()]
    assert times == sorted(times)
    for each in (one, other):
        assert sum(end - begin for begin, end in each.spans_s) == pytest.approx(each.wall_s)
    for ours, theirs in zip(one.spans_s, other.spans_s):  # both read the same clock here
        assert theirs[0] < ours[1] + one.clock_error_s
        assert ours[0] < theirs[1] + one.clock_error_s


def test_one_rank_needs_no_barrier_before_communication(sampling):
    trainer, made = passes(sampling, feed=resident)
    made.run("staged")
    stages = ["forward", "backward", "communicate", "update"]
    assert trimmed(trainer.calls)[: WARMUP * 4] == stages * WARMUP  # no "maximum" among them


def test_every_replica_makes_its_own_synthetic_batches_and_a_proof_s_parts_are_the_whole():
    graph = jobs.graph()
    first, second, again = (own_synthetic(graph, 4, 5, replica) for replica in (0, 1, 0))
    assert len(first) == RESIDENT
    assert all(batch.inputs.shape == (4, 1, 28, 28) and batch.inputs.dtype == "float32" for batch in first)
    assert all((one.inputs == other.inputs).all() for one, other in zip(first, again))
    everything = np.stack([batch.inputs for batch in first + second]).reshape(2 * RESIDENT, -1)
    assert len(np.unique(everything[:, 0])) == 2 * RESIDENT
    whole = synthetic(jobs.graph(), 8, 5)
    assert whole.labels.dtype == "int64"
    assert set(whole.labels) <= set(range(10))
    parts = [share(whole, rank, 4) for rank in range(2)]
    assert (parts[1].inputs == whole.inputs[4:]).all()
    assert [len(part.labels) for part in parts] == [4, 4]


@pytest.fixture
def behind(clock, sampling):
    """Passes of a trainer whose device runs behind its host; (each pass, ..., the trainer)."""

    def run(*names, **how):
        trainer = BehindTrainer(clock, **how)
        made = toy.passes_of(trainer, sampling, names=names)
        return (*[made.run(name) for name in names], trainer)

    return run


def differences(found):
    return [native - other for native, other in found.pairs_s]


@pytest.mark.parametrize(
    ("read_s", "copy_s", "added"),
    [
        (0.5, 0.0, 0.0),  # a quick reader: hidden altogether, though its first batches have to be waited for
        (0.5, 0.25, 0.25),  # ... but for the copy
        (3.0, 0.0, 2.0),  # a slow one: what it takes longer than a step
        (3.0, 0.25, 2.0),  # ... in which the copy is hidden
    ],
)
def test_exposed_input_is_what_reading_adds_whatever_the_host_waits(behind, read_s, copy_s, added):
    found, _ = behind("resident", step_s=1.0, read_s=read_s, copy_s=copy_s)
    assert found.pairs_s[0][1] == pytest.approx(1.0)
    assert differences(found) == pytest.approx([added] * 4, abs=0.26)  # a batch's place in a block of two steps
    assert found.loss == 0.5


def test_readers_that_finish_at_the_same_time_hide_nothing(behind):
    """The first batch of eight is waited for, the others lie ready: a block of two steps would find them all."""
    found, _ = behind("resident", step_s=1.0, read_s=3.0, at_once=8, ahead=16, readers=8)
    assert differences(found) == pytest.approx([2.0] * 4, abs=0.4)  # a step of eight at the ends


def test_exposed_communication_is_not_hidden_by_a_slow_reader(behind):
    found, trainer = behind("compute_only", world=2, step_s=1.0, exchange_s=0.3, read_s=9.0)
    assert differences(found) == pytest.approx([0.3] * 4)
    assert trainer.calls.count("next_batch") == RESIDENT


@pytest.mark.parametrize(("name", "first_s"), [("native", 0.0), ("io_only", 0.0), ("native", 40.0)])
def test_nothing_is_prepaid_nor_while_the_first_step_compiles(behind, name, first_s):
    found, _ = behind(name, step_s=0.01, read_s=1.0, ahead=16, first_s=first_s)
    if first_s:
        assert found.warmup_s[-1] == pytest.approx(0.01)
    else:
        assert found.warmup_s == pytest.approx([1.0] * WARMUP, rel=0.02)
    assert found.step_s == pytest.approx([1.0] * 3, rel=0.02)


def test_draining_stops_where_batches_must_be_waited_for(behind):
    _, trainer = behind("resident", step_s=1.0, read_s=3.0, readers=8, prefetch=5, ahead=40)
    drains = 4
    assert trainer.calls.count("next_batch") < 48 + RESIDENT + drains * (READ_AHEAD + 4)


@pytest.mark.parametrize(
    ("setup", "size"),
    [
        ({"world": 2}, 40),
        ({"devices": 2}, 40),
        ({"world": 2, "precision": "bfloat16"}, 40),  # mixed precision: gradients are float32
        ({"world": 2, "precision": "float64"}, 80),
        ({}, None),
        ({"world": 4, "model_parallel_size": 2}, None),
    ],
)
def test_what_is_exchanged_is_gradients_in_the_type_of_the_parameters(sampling, setup, size):
    class Ten(toy.ToyTrainer):
        def parameter_count(self):
            return 10

    trainer = Ten(trainers.setup(**setup))
    assert toy.passes_of(trainer, sampling, resident).run("native").gradient_bytes == size


@pytest.mark.usefixtures("clock")
def test_waiting_for_other_parts_is_a_stage_of_its_own_where_there_are_parts(sampling):
    class PartToy(toy.ToyTrainer):
        """Holds a part of a network: half of its forward and a quarter of its backward is waiting."""

        def bubble(self):
            return {"forward": 0.002, "backward": 0.001}

    sleeping = {"sleep": {"forward": 0.004, "backward": 0.004, "step": 0.008}}
    trainer = PartToy(trainers.setup(world=4, model_parallel_size=2, batch=8, knobs=sleeping))
    record = toy.passes_of(trainer, sampling).run("staged")
    stages = record.stage_s
    assert stages["bubble"] == pytest.approx([0.003] * len(record.step_s))
    assert min(stages["forward"]) == pytest.approx(0.002)
    assert sum(map(sum, stages.values())) == pytest.approx(record.wall_s)
    assert record.samples == len(record.step_s) * 8 / 2, "a network's batch counts once over its ranks"
    _, made = passes(sampling, world=2, knobs=sleeping)
    assert "bubble" not in made.run("staged").stage_s


def test_ranks_in_a_row_hold_one_network():
    setups = [[trainers.setup(rank=rank, world=4, model_parallel_size=size) for rank in range(4)] for size in (1, 2)]
    assert [[setup.replica for setup in row] for row in setups] == [[0, 1, 2, 3], [0, 0, 1, 1]]
    assert [[setup.replicas for setup in row] for row in setups] == [[4] * 4, [2] * 4]
