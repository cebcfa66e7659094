"""The stage clock: what it adds up to, what it costs, what it forgets."""

import pytest
import toy

from stagebench.suite.worker.clock import STAGES, StageClock
from tests.support import trainers

SLEEPS = {"next_batch": 0.004, "to_device": 0.001, "forward": 0.005, "backward": 0.008, "update": 0.002}
METHODS = {"io": "next_batch", "h2d": "to_device", "forward": "forward", "backward": "backward", "update": "update"}


def test_stages_add_up_to_the_wall_time_and_a_batch_is_released_in_the_next_io(sampling, clock):
    trainer = toy.ToyTrainer(trainers.setup(knobs={"sleep": SLEEPS}))
    record = toy.passes_of(trainer, sampling, steps=40).run("staged")
    assert {stage: len(column) for stage, column in record.stage_s.items()} == dict.fromkeys(STAGES, len(record.step_s))
    for stage, method in METHODS.items():
        assert record.stage_s[stage] == pytest.approx([SLEEPS[method]] * len(record.step_s)), stage
    assert not any(record.stage_s["skew"])  # one rank waits for nobody
    assert sum(sum(column) for column in record.stage_s.values()) == pytest.approx(record.wall_s)
    trainer = Heavy(trainers.setup(knobs={"sleep": {"forward": 0.004}}))
    trainer.clock = clock
    record = toy.passes_of(trainer, sampling, steps=40).run("staged")
    size = len(record.step_s) // len(record.spans_s)
    released = [seconds for at, seconds in enumerate(record.stage_s["io"]) if at % size]
    assert released == pytest.approx([0.004] * len(released))


class Heavy(toy.ToyTrainer):
    """Its batches take long to let go."""

    def next_batch(self):
        return Held(self.clock)


class Held:
    def __init__(self, clock):
        self._clock = clock

    def __del__(self):
        self._clock.sleep(0.004)


class Device(toy.ToyTrainer):
    """Marks are numbers on a line of the device's own; reading one is noted."""

    def __init__(self, setup):
        super().__init__(setup)
        self.now = 0
        self.read = 0

    def mark(self):
        self.now += 1
        return self.now

    def elapsed(self, begin, end):
        self.read += 1
        return (end - begin) * 0.5


def test_marks_are_read_at_the_end_without_gaps_or_warm_up():
    trainer = Device(trainers.setup())
    clock = StageClock(trainer)
    for _ in range(3):
        clock.begin()
        trainer.now += 10  # between the iterations, seen by the next one alone
        for _ in STAGES:
            clock.lap()
        trainer.now += 4
    assert trainer.read == 0
    seconds = clock.seconds()
    assert trainer.read == 3 * len(STAGES)
    assert seconds == {**{stage: [0.5] * 3 for stage in STAGES}, "io": [5.5, 7.5, 7.5]}
    assert sum(map(sum, seconds.values())) == 0.5 * (trainer.now - 4 - 1)  # from the first mark to the last


def test_untimed_iterations_and_what_is_between_blocks_count_in_no_stage():
    trainer = Device(trainers.setup())
    clock = StageClock(trainer, untimed=1)
    for counts in (False, True, True):
        for _ in range(4):
            trainer.now += 10  # seen by the third and fourth of a block: ranks meet before the second
            clock.begin()
            for _ in STAGES:
                clock.lap()
        clock.end_block(counts)
    assert clock.seconds()["io"] == [0.5, 5.5, 5.5] * 2


class Behind(Device):
    """Its host runs ahead: a stage is asked for in no time and takes a second there, and a mark is reached in turn."""

    events = True

    def __init__(self, setup):
        super().__init__(setup)
        self.reached = 0  # by the device

    def has_device_marks(self):
        return self.events

    def _called(self, name):
        if name in ("forward", "backward", "communicate", "update"):
            self.now += 1
        super()._called(name)

    def mark(self):
        return self.now

    def elapsed(self, begin, end):
        assert end <= self.reached, "the device has not come so far"
        return float(end - begin)

    def synchronize(self):
        self.calls.append("synchronize")
        self.reached = self.now


@pytest.mark.parametrize(("events", "world", "waits"), [(True, 1, 0), (True, 2, 1), (False, 1, 5)])
def test_events_are_waited_for_once_a_pass_and_where_ranks_meet(sampling, events, world, waits):
    trainer = Behind(trainers.setup(world=world))
    trainer.events = events
    record = toy.passes_of(trainer, sampling).run("staged")
    seconds = dict(dict.fromkeys(STAGES, 0.0), forward=1.0, backward=1.0, communication=1.0, update=1.0)
    assert record.stage_s == {stage: [each] * len(record.step_s) for stage, each in seconds.items()}
    last = trainer.calls[-1 - trainer.calls[::-1].index("forward") :]
    last = last[: last.index("next_batch")]  # the last iteration, and the loop's own wait
    assert last.count("synchronize") == waits + 1
