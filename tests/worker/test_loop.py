"""The measuring loop: when it begins to count, how long it counts, on every rank alike."""

import math
import time

import toy

from suite.worker.loop import AGREEING, Loop
from tests.support import trainers


def silent(**_):
    pass


def spread(seconds):
    last = seconds[-AGREEING:]
    return max(last) / min(last) - 1.0


def test_it_warms_up_until_the_last_steps_agree(sampling):
    sleeps = [0.08, 0.04, 0.08, 0.04]

    def body():
        time.sleep(sleeps.pop(0) if sleeps else 0.01)

    rule = sampling._replace(warmup_steps=5, steady=0.5, warmup_limit_s=20.0)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("native", body)
    assert timed.steady
    assert len(timed.warmup_s) >= 4 + AGREEING
    assert spread(timed.warmup_s) <= 0.5
    # ... and stopped at the first chance it had
    assert all(spread(timed.warmup_s[:n]) > 0.5 for n in range(AGREEING, len(timed.warmup_s)))


def test_it_warms_up_for_as_many_steps_as_asked(sampling):
    rule = sampling._replace(warmup_steps=12, steady=1e9)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("native", lambda: time.sleep(0.001))
    assert (len(timed.warmup_s), timed.steady) == (12, True)


def test_a_restless_case_is_measured_and_marked(sampling):
    sleeps = [0.002, 0.01] * 1000
    rule = sampling._replace(warmup_limit_s=0.1, steady=0.2)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("native", lambda: time.sleep(sleeps.pop()))
    assert not timed.steady
    assert 0.09 < sum(timed.warmup_s) < 5.0
    assert len(timed.step_s) == 3


def test_it_measures_long_enough(sampling):
    rule = sampling._replace(steady=1e9, steps=4, seconds=0.1)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("native", lambda: time.sleep(0.005))
    usual = sorted(timed.warmup_s[-AGREEING:])[AGREEING // 2]
    assert len(timed.step_s) == max(4, math.ceil(0.1 / usual)) > 4


def test_steps_add_up_to_the_wall_time_and_carry_what_the_body_returned(sampling):
    numbers = iter(range(1000))

    def body():
        time.sleep(0.01)
        return next(numbers)

    timed = Loop(toy.ToyTrainer(trainers.setup()), sampling._replace(steps=20), silent).run("native", body)
    assert timed.returned == list(range(len(timed.warmup_s), len(timed.warmup_s) + 20))
    assert 0.99 * timed.wall_s < sum(timed.step_s) <= timed.wall_s


def test_measured_is_called_once_between_warm_up_and_steps(sampling):
    events = []
    loop = Loop(toy.ToyTrainer(trainers.setup()), sampling._replace(steady=1e9), silent)
    loop.run("staged", lambda: events.append("step"), measured=lambda: events.append("measured"))
    assert events == ["step"] * 5 + ["measured"] + ["step"] * 3


def test_progress_reports_pass_phase_and_step(sampling):
    reported = []
    loop = Loop(
        toy.ToyTrainer(trainers.setup()), sampling._replace(steady=1e9), lambda **progress: reported.append(progress)
    )
    loop.run("native", lambda: time.sleep(0.001))
    assert reported[0] == {"name": "native", "phase": "warmup", "step": 1, "of": 5}
    assert reported[-1] == {"name": "native", "phase": "measure", "step": 3, "of": 3}
    assert len(reported) == 8


def test_ranks_of_different_speed_agree_on_every_count(sampling):
    group = toy.Group(2)

    class Ranked(toy.ToyTrainer):
        def maximum(self, value):
            return group.maximum(self.setup.rank, value)

    def work(rank):
        # Rank 1 is faster, and restless for a while: both must wait for it to settle.
        sleeps = [0.001, 0.01] * 3 if rank else []
        trainer = Ranked(trainers.setup(rank=rank, world=2))
        usual = 0.005 if rank else 0.01
        rule = sampling._replace(steady=0.8, warmup_limit_s=20.0, seconds=0.1)
        return Loop(trainer, rule, silent).run("native", lambda: time.sleep(sleeps.pop() if sleeps else usual))

    slow, fast = group.run(work)
    assert len(slow.warmup_s) == len(fast.warmup_s) > AGREEING
    assert len(slow.step_s) == len(fast.step_s)
    assert slow.steady
    assert fast.steady
    usual = sorted(fast.warmup_s[-AGREEING:])[AGREEING // 2]
    assert len(slow.step_s) == math.ceil(0.1 / usual)  # the rank that needs more steps decides


def test_a_quick_profile_lets_fewer_steps_agree(sampling):
    rule = sampling._replace(warmup_steps=3, steady=1e9)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("native", lambda: time.sleep(0.001))
    assert (len(timed.warmup_s), timed.steady) == (3, True)


def test_a_body_that_slows_down_ends_by_the_clock_when_it_runs_alone(sampling):
    ready = [0.0] * 8

    def body():
        time.sleep(ready.pop() if ready else 0.02)

    rule = sampling._replace(warmup_steps=5, steady=1e9, steps=3, seconds=0.1)
    timed = Loop(toy.ToyTrainer(trainers.setup()), rule, silent).run("io_only", body, alone=True)
    assert 3 <= len(timed.step_s) <= 12
    assert timed.wall_s >= 0.1
