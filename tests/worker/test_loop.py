"""The measuring loop: when it begins to count, how long it counts, on every rank alike."""

import gc
import math
import threading
import time
from contextlib import contextmanager
from operator import truediv

import numpy as np
import pytest
import toy
import wires

from stagebench.suite.worker.loop import QUICK_WINDOW, ROUNDS, Loop, Side, falling, reported_every, usual
from stagebench.suite.worker.messages import HostUse
from tests.support import trainers


class Unmetered:
    def __init__(self, gpus):
        assert gpus == []

    def begin(self):
        pass

    def end(self):
        return None


class Scripted:
    """Counts seconds by itself: each step takes what its script says, then its usual time."""

    def __init__(self, usual=0.01, *script):
        self.now, self.steps = 0.0, 0
        self._usual, self._script = usual, list(script)

    def perf_counter(self):
        return self.now

    def __call__(self):
        self.steps += 1
        self.now += self._script.pop(0) if self._script else self._usual


@pytest.fixture
def warm_up(monkeypatch, sampling):
    """The warm-up of a scripted body: the result of the loop."""

    def run(body, **rule):
        monkeypatch.setattr("stagebench.suite.worker.loop.time", body)
        return toy.loop_of(toy.ToyTrainer(trainers.setup()), sampling, **rule).alone("io_only", body)

    return run


@pytest.mark.parametrize(
    ("asked", "script", "steps"),
    [
        (3, [], 6),  # as few as tell a trend
        (12, [], 12),  # as many as asked for
        (3, [4.0], 6),  # the first step compiles: no trend
        (8, [0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02], 12),  # ... until the halves are alike
        (3, [0.01, 0.02, 0.01, 0.02, 0.01, 0.02], 6),  # restless, and no trend
        (3, [0.01] * 5 + [4.0], 6),  # one spike prolongs nothing
        (8, [0.08] * 4 + [0.04] * 3 + [4.0], 9),  # ... and hides no trend
    ],
)
def test_a_warm_up_ends_when_steps_no_longer_get_quicker(warm_up, asked, script, steps):
    timed = warm_up(Scripted(0.01, *script), warmup_steps=asked, warmup_limit=60.0)
    assert timed.steady
    assert len(timed.warmup_s) == steps


def test_noise_is_no_trend_and_a_slow_trend_is_seen():
    stream = np.random.RandomState(1)
    found = [falling(list(0.1 * np.exp(stream.normal(0.0, 0.2, 8)))) for _ in range(4000)]
    assert np.mean(found) < 0.08
    for step in (0.9, 0.97):
        assert falling([0.1 * step**n for n in range(8)])


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        (0.0, 18),  # three times what is needed at least, however slow they are
        (1e9, 180),  # thirty times at most, however quick
    ],
)
def test_a_trend_that_stays_is_measured_and_marked(warm_up, limit, steps):
    timed = warm_up(Scripted(0.01, *[0.95**n for n in range(1000)]), warmup_steps=3, warmup_limit=limit)
    assert not timed.steady
    assert len(timed.warmup_s) == steps
    assert len(timed.step_s) == 3


@pytest.fixture
def beside(monkeypatch, sampling):
    """The native steps of a scripted body on a host that others use at times; (steps, set aside, what was counted)."""

    def run(used, seconds=2.0, limit=0.0):
        """`used`: how much by others, in every part of half a second, beyond the last one as in it."""
        body = Scripted(0.01)
        use = HostUse(0.5, busy_cpu_s=0.5, steal_cpu_s=0.0, cores=2, own_cpu_s=0.5, cpu_joules=1.0)

        class Counted(Unmetered):
            asked = 0

            def end(self):
                Counted.asked += 1
                share = used[min(Counted.asked, len(used)) - 1]
                return use._replace(clock_hz=float(Counted.asked), busy_cpu_s=use.own_cpu_s + share)

        monkeypatch.setattr("stagebench.suite.worker.loop.time", body)
        monkeypatch.setattr("stagebench.suite.worker.loop.Meter", Counted)
        rule = {"warmup_steps": 3, "steps": 5, "seconds": seconds, "warmup_limit": limit}
        loop = toy.loop_of(toy.ToyTrainer(trainers.setup()), sampling, **rule)
        return loop.undisturbed("native", Side(lambda: (body(), body.steps)[1]))

    return run


@pytest.mark.parametrize(
    ("used", "limit", "kept", "run"),
    [
        ([0.0], 0.0, [1, 2, 3, 4], 4),  # nobody else
        ([0.01, 0.02, 0.0], 0.0, [1, 2, 3, 4], 4),  # ... and less than three hundredths of the cores is nobody
        ([0.0, 0.5, 0.5, 0.0], 0.0, [1, 4, 5, 6], 6),  # come and gone
        ([0.5], 0.0, [1, 2, 3, 4], 8),  # here to stay: as long again
        ([0.5], 5.0, [1, 2, 3, 4], 14),  # ... or as long as the limit
        ([0.5, 0.3, 0.5, 0.0, 0.5, 0.2, 0.4, 0.5], 0.0, [2, 4, 6, 7], 8),  # never quiet for long enough: the quietest
    ],
)
def test_steps_count_that_others_left_alone(beside, used, limit, kept, run):
    timed, aside, use = beside(used, limit=limit)
    parts = [timed.returned[at * 50] for at in range(4)]
    assert parts == [6 + 1 + 50 * (number - 1) for number in kept]
    assert len(timed.step_s) == len(timed.returned) == 200
    assert timed.wall_s == pytest.approx(2.0)
    assert len(aside) == 50 * (run - 4)
    assert (use.seconds, use.clock_hz, use.cpu_joules) == (2.0, kept[-1], 4.0)
    timed, aside, _ = beside([0.0], seconds=0.02)
    assert (len(timed.step_s), aside) == (5, []), "a short pass is one part"


def test_parts_and_blocks_hold_whole_periods_of_an_exchange(monkeypatch, sampling):
    """Models are averaged every eighth step, and readers finish three batches at once."""
    body, trainer = Scripted(0.01), toy.ToyTrainer(trainers.setup())
    trainer.period = 8
    monkeypatch.setattr("stagebench.suite.worker.loop.time", body)
    monkeypatch.setattr("stagebench.suite.worker.loop.Meter", Unmetered)
    loop = toy.loop_of(trainer, sampling, warmup_steps=3, steps=5, seconds=1.0, warmup_limit=0.0)
    timed, aside, _ = loop.undisturbed("native", Side(body, multiple=3))
    assert (len(timed.step_s), aside) == (2 * 72, [])  # two parts of 50 steps, rounded up
    (turn,) = loop.in_turns("compute_only", Side(body), Side(body))
    assert len(turn.timed.step_s) % (8 * len(turn.pairs)) == 0


class Ranks:
    """Ranks in threads, each with its own clock; `maximum` sets all clocks to the latest one, as a barrier does."""

    def __init__(self, step_s):
        self._step_s, self._clocks, self._own = step_s, [0.0] * len(step_s), threading.local()
        self._values = list(self._clocks)
        self._barrier, self._left = (threading.Barrier(len(step_s), timeout=60.0) for _ in range(2))

    def perf_counter(self):
        return self._clocks[self._own.rank]

    def step(self):
        self._clocks[self._own.rank] += self._step_s[self._own.rank]

    def maximum(self, value):
        self._values[self._own.rank] = value
        if self._barrier.wait() == 0:
            self._clocks = [max(self._clocks)] * len(self._clocks)
        self._left.wait()
        found = max(self._values)
        self._barrier.wait()
        return found

    def run(self, work):
        """Return what `work(rank)` returns on each rank."""

        def own(rank):
            self._own.rank = rank
            return work(rank)

        return toy.together(len(self._step_s), own)


@pytest.mark.parametrize(("own_pace", "rate"), [(True, 3.5 / 0.01), (False, 4 / 0.02)])
def test_workers_that_wait_for_none_are_timed_by_the_clock(monkeypatch, sampling, own_pace, rate):
    """One of four workers is half as fast."""
    ranks = Ranks([0.01, 0.01, 0.01, 0.02])
    monkeypatch.setattr("stagebench.suite.worker.loop.time", ranks)
    monkeypatch.setattr("stagebench.suite.worker.loop.Meter", Unmetered)
    monkeypatch.setattr("stagebench.suite.worker.loop.little_to_collect", contextmanager(lambda: iter([None])))

    def work(rank):
        trainer = toy.ToyTrainer(trainers.setup(rank=rank, world=4))
        trainer.maximum, trainer.mark = ranks.maximum, ranks.perf_counter
        trainer.waits_for_ranks = lambda: not own_pace
        trainer.dropped_steps = lambda: 0
        return toy.loop_of(trainer, sampling, seconds=2.0).undisturbed("native", Side(ranks.step))[0]

    timed = ranks.run(work)
    steps, walls = [len(each.step_s) for each in timed], [each.wall_s for each in timed]
    found = sum(map(truediv, steps, walls)) if own_pace else sum(steps) / max(walls)
    assert found == pytest.approx(rate, rel=0.02)
    assert min(walls) == pytest.approx(2.0, rel=0.02) or not own_pace


def test_every_part_of_a_side_that_reads_begins_drained(monkeypatch, sampling):
    body, events = Scripted(0.01), []
    monkeypatch.setattr("stagebench.suite.worker.loop.time", body)
    monkeypatch.setattr("stagebench.suite.worker.loop.Meter", Unmetered)
    loop = toy.loop_of(toy.ToyTrainer(trainers.setup()), sampling, seconds=2.0)
    timed, _, _ = loop.undisturbed("native", Side(body, lambda: events.append(body.steps), untimed=2))
    assert len(timed.step_s) == 200
    assert events == [6 + part * (2 + 50) for part in range(4)]


def test_it_measures_long_enough_and_steps_add_up_to_the_wall_time(sampling):
    trainer = toy.ToyTrainer(trainers.setup())
    timed = toy.loop_of(trainer, sampling, steps=4, seconds=0.1).alone("io_only", lambda: time.sleep(0.005))
    assert len(timed.step_s) >= 4
    assert timed.wall_s >= 0.1
    numbers = iter(range(1000))

    def body():
        time.sleep(0.01)
        return next(numbers)

    timed = toy.loop_of(trainer, sampling, steps=20).alone("io_only", body)
    assert timed.returned == list(range(len(timed.warmup_s), len(timed.warmup_s) + 20))
    assert 0.99 * timed.wall_s < sum(timed.step_s) <= timed.wall_s


def test_progress_is_reported_of_warm_up_and_steps(monkeypatch, sampling, settled):
    reported, body = [], Scripted(0.001)
    monkeypatch.setattr("stagebench.suite.worker.loop.time", body)
    loop = Loop(toy.ToyTrainer(trainers.setup()), sampling, lambda **progress: reported.append(progress))
    loop.alone("io_only", body)
    assert reported[0] == {"name": "io_only", "phase": "warmup", "step": 1, "of": 6}
    assert reported[6:] == [{"name": "io_only", "phase": "measure", "step": 1, "of": 3}]  # quick steps: not at each
    assert [reported_every([step_s] * 6) for step_s in (0.5, 0.04, 0.001)] == [1, 2, 100]  # about ten times a second


@pytest.mark.skipif(not hasattr(gc, "freeze"), reason="Python 3.6 cannot set objects apart from collections")
@pytest.mark.parametrize("measure", ["alone", "undisturbed", "in_turns"])
def test_garbage_is_collected_only_among_what_a_pass_makes(sampling, settled, measure):
    apart = []
    loop = toy.loop_of(toy.ToyTrainer(trainers.setup()), sampling, seconds=0.0)

    def body():
        time.sleep(0.05)
        apart.append(gc.get_freeze_count())

    side = Side(body)
    gc.unfreeze()
    {
        "alone": lambda: loop.alone("io_only", side.body),
        "undisturbed": lambda: loop.undisturbed("native", side),
        "in_turns": lambda: loop.in_turns("compute_only", side, side),
    }[measure]()
    assert apart[0] == 0  # of a warm-up, which may make what stays
    assert apart[-1] > 1000
    assert gc.get_freeze_count() == 0


def test_ranks_of_different_speed_agree_on_every_count(sampling):
    group = wires.Threads(2)

    def work(rank):
        # Rank 1 is faster, and gets quicker for a while: both must wait for it to settle.
        sleeps = [0.04 * 0.8**n for n in range(12)] if rank else []
        trainer, pace = toy.ToyTrainer(trainers.setup(rank=rank, world=2)), 0.0012 if rank else 0.01
        trainer.maximum = lambda value: max(group.exchange(rank, value))
        side = Side(lambda: time.sleep(sleeps.pop(0) if sleeps else pace))
        return toy.loop_of(trainer, sampling, warmup_limit=20.0, seconds=0.1).undisturbed("native", side)[0]

    slow, fast = toy.together(2, work)
    assert len(slow.warmup_s) == len(fast.warmup_s) > QUICK_WINDOW
    assert len(slow.step_s) == len(fast.step_s)
    assert slow.steady
    assert fast.steady
    assert len(slow.step_s) == math.ceil(0.1 / usual(fast.warmup_s))  # the rank that needs more steps decides


class TestInTurns:
    """Two or three bodies in blocks that alternate."""

    @pytest.fixture
    def turns(self, monkeypatch, sampling):
        """[turn, ..., in order "n", "o", "t" for every step, "d" for a drain, "(" and ")" around the third's]."""

        def run(native_s=0.5, other_s=0.3, third_s=None, drift=1.0, settles=False, least_rounds=ROUNDS, **rule):
            clock, called, progress = Scripted(), [], []

            def stepping(name, seconds):
                def body():
                    called.append(name)
                    clock.now += seconds * drift ** len(called)

                return body

            monkeypatch.setattr("stagebench.suite.worker.loop.time", clock)
            trainer = toy.ToyTrainer(trainers.setup())
            trainer.mark = clock.perf_counter
            loop = Loop(trainer, sampling._replace(**rule), lambda **now: progress.append((now["step"], now["of"])))
            native = Side(stepping("n", native_s), lambda: called.append("d"), 1)
            others = [Side(stepping("o", other_s), settles=settles)]
            if third_s is not None:
                others.append(Side(stepping("t", third_s), lambda: called.append("("), end=lambda: called.append(")")))
            found = [*loop.in_turns("resident", native, *others, least_rounds=least_rounds), "".join(called)]
            assert 0.9 * progress[-1][1] < progress[-1][0] <= progress[-1][1]  # quick steps do not report each
            measured = [now for now in progress if now[1] == progress[-1][1]]
            assert measured == sorted(measured)
            return found

        return run

    def test_blocks_alternate_and_both_sides_are_kept(self, turns):
        (timed, pairs), called = turns()
        assert called == "ooo" + "nn" + "dnnnooo" + "ooodnnn" + "dnnnooo" + "ooodnnn"
        assert pairs == [(pytest.approx(0.5), pytest.approx(0.3))] * 4
        assert timed.step_s == pytest.approx([0.3] * 8)
        assert timed.wall_s == pytest.approx(8 * 0.3)
        assert timed.warmup_s == pytest.approx([0.3] * 3)
        assert [end - begin for begin, end in timed.spans] == pytest.approx([2 * 0.3] * 4)
        assert timed.spans == sorted(timed.spans)

    def test_a_side_with_code_of_its_own_warms_up_until_no_trend_is_left(self, turns):
        (timed, _), called = turns(settles=True, least_rounds=2)
        assert called == "oooooo" + "nn" + "dnnnooo" + "ooodnnn"
        assert (len(timed.warmup_s), timed.steady) == (6, True)
        (timed, _), _ = turns(settles=True, drift=0.97)
        assert (len(timed.warmup_s), timed.steady) == (3 * 6, False)

    def test_a_third_side_has_blocks_of_its_own_length_in_the_same_rounds(self, turns):
        one, other, called = turns(third_s=0.04)
        there, back = "dnnn" + "ooo" + "(tttt)", "(tttt)" + "ooo" + "dnnn"
        assert called == "ooo" + "(ttt)" + "nn" + (there + back) * 2
        assert one.pairs == [(pytest.approx(0.5), pytest.approx(0.3))] * 4
        assert other.pairs == [(pytest.approx(0.5), pytest.approx(0.04))] * 4
        assert other.timed.wall_s == pytest.approx(4 * 3 * 0.04)

    def test_quick_steps_make_longer_blocks(self, turns):
        (timed, pairs), _ = turns(0.002, 0.001, seconds=1.0)
        assert len(timed.step_s) / len(pairs) == 100  # 0.1 s of them
        assert len(pairs) == 6  # 600 + 600 steps: no fewer than the pass by itself would have had, and an even number

    def test_a_drift_cancels(self, turns):
        (_, pairs), _ = turns(0.5, 0.5, drift=1.001)
        ratios = [native / other for native, other in pairs]
        assert max(ratios) > 1.002
        assert math.exp(sum(map(math.log, ratios)) / len(ratios)) == pytest.approx(1.0, abs=1e-3)


def test_a_body_that_slows_down_ends_by_the_clock_when_it_runs_alone(sampling):
    ready = [0.0] * 8

    def body():
        time.sleep(ready.pop() if ready else 0.02)

    loop = toy.loop_of(toy.ToyTrainer(trainers.setup()), sampling, warmup_steps=5, steps=3, seconds=0.1)
    timed = loop.alone("io_only", body)
    assert 3 <= len(timed.step_s) <= 12
    assert timed.wall_s >= 0.1
