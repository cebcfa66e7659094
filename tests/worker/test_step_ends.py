"""When the steps of a device that runs behind its host were done. Oldest Python: 3.6."""

import pytest

from stagebench.suite.worker import step_ends
from stagebench.suite.worker.step_ends import StepEnds
from tests.support.behind import Clock


class Device:
    """Steps take `step_s`; what a step leaves is the time at which it is done."""

    def __init__(self, clock, step_s):
        self._clock, self._step_s, self._free = clock, step_s, 0.0

    def step(self):
        self._free = max(self._free, self._clock.now) + self._step_s
        return self._free

    def wait(self, done):
        self._clock.now = max(self._clock.now, done)

    def ready(self, done):
        return done <= self._clock.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_ends, "time", clock)
    return clock


def measured(clock, behind, steps, device_s=1.0, host_s=0.0, knows=False):
    """Seconds of each step as a measuring loop has them, and how far the host was ahead at most."""
    device = Device(clock, device_s)
    ends = StepEnds(behind, device.wait, device.ready) if knows else StepEnds(behind, device.wait)
    marks, ahead = [ends.mark()], 0.0
    for _ in range(steps):
        clock.now += host_s
        result = device.step()
        ends.asked(result)
        ahead = max(ahead, result - clock.now)
        marks.append(ends.mark())
    ends.settle()
    return [marks[step + 1] - marks[step] for step in range(steps)], ahead


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_each_step_takes_what_the_device_took(clock, behind, steps, knows):
    assert measured(clock, behind, steps, knows=knows) == ([1.0] * steps, float(min(behind, steps)))


def test_a_slow_host_s_steps_are_together_as_long_as_the_loop_and_exact_where_a_framework_can_tell(clock):
    steps, _ = measured(clock, 1, 5, device_s=0.25, host_s=1.0)
    assert sum(steps) == clock.now == 5.25
    steps, _ = measured(clock, 2, 5, device_s=0.25, host_s=1.0, knows=True)
    assert steps[1:-1] == [1.0] * 3
    assert sum(steps) == 5.25


def test_a_mark_without_a_step_is_now_and_what_is_not_known_yet_is_no_number(clock):
    ends = StepEnds(1, lambda _: None)
    begin = ends.mark()
    clock.now = 3.0
    assert ends.mark() - begin == 3.0
    ends.asked("step")
    ends.settle()
    clock.now = 4.0
    assert ends.mark() - begin == 4.0
    ends = StepEnds(2, lambda _: None)
    begin = ends.mark()
    ends.asked("step")
    with pytest.raises(RuntimeError, match="synchronize before"):
        ends.mark() - begin
