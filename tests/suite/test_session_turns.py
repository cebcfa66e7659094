"""Cases that will be compared stand side by side and measure in turns."""

import contextlib
import sys

import pytest

from stagebench.suite.analysis.stats import ratio
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.errors import Interrupted
from stagebench.suite.session import turns
from stagebench.suite.session.cases import Runnable, turn_groups
from stagebench.suite.session.turns import Room, take_turns
from stagebench.suite.worker.machine import HostMemory
from stagebench.suite.worker.messages import Progress
from tests.suite.measuring import BRIEF, Listener, case, run

LONG = BRIEF._replace(seconds=1.2)  # two parts and more


def long(**changes):
    """A case that has a turn after another one's, and another turn after that."""
    return case(**{"sampling": LONG, "passes": ("native",), **changes})


class Hearing(Listener):
    """Which cases were heard of while they measured, in that order, each once in a row; may stop the session there."""

    def __init__(self, stop_after=sys.maxsize):
        super().__init__()
        self.heard, self.most = [], stop_after

    def message(self, case, rank, message):
        if isinstance(message, Progress) and message.phase == "measure" and message.name == "native":
            self.heard += [case.id] if self.heard[-1:] != [case.id] else []
            if len(self.heard) > self.most:
                raise KeyboardInterrupt


def test_cases_that_will_be_compared_take_turns(folder):
    cases = [long(seed=1), long(seed=2), long(batch=3)]
    one, other, alone = [each.id for each in cases]
    listener = Hearing()
    assert run(folder, cases, listener) == {"ok": 3}
    assert listener.heard[:3] == [other, one, other], "each was started before any had its turn; then forth and back"
    assert {name: folder.record(name, 0).turns_with for name in (one, other, alone)} == {
        one: (other,), other: (one,), alone: ()
    }  # fmt: skip
    for name in (one, other, alone):
        native = folder.record(name, 0).ranks[0].passes["native"]
        assert native.wall_s == pytest.approx(sum(native.step_s), rel=0.1)
    assert list(folder.path.glob("attempts/**/turns-*")) == []


def test_default_and_tuned_of_a_network_take_turns(folder):
    """What an ordinary user's script loses is a ratio of the two."""
    twice = LONG._replace(processes=2)
    one, other = long(sampling=twice, tuning="default"), long(sampling=twice, tuning="tuned")
    run(folder, [one, other])
    assert [folder.record(each.id, 0).turns_with for each in (one, other)] == [(other.id,), (one.id,)]
    default, tuned = (row.rates for row in summarise(folder))
    assert ratio(tuned, default).processes == 2, "a ratio over the rounds of both, with its interval"


@pytest.mark.parametrize("frameworks", [4, 5])
def test_default_and_tuned_stand_together_if_all_of_them_may(frameworks):
    cases = [case(seed=seed, tuning=tuning) for seed in range(frameworks) for tuning in ("tuned", "default")]
    groups = turn_groups([Runnable(each, None) for each in cases])
    assert [len(group) for group in groups] == ([8] if frameworks == 4 else [5, 5])
    tunings = [item.case.tuning for group in groups for item in group]
    assert tunings == ["tuned"] * frameworks + ["default"] * frameworks


def test_cases_that_took_turns_are_all_written_down_when_they_are_stopped(folder):
    cases = [long(seed=1), long(seed=2)]
    with pytest.raises(Interrupted, match="0 of 2 records"):
        run(folder, cases, Hearing(stop_after=1))
    assert [folder.record(each.id, 0).outcome for each in cases] == ["cancelled", "cancelled"]
    assert run(folder, cases) == {"ok": 2}


def test_a_case_that_fails_leaves_those_alone_that_it_took_turns_with(folder):
    cases = [long(seed=1), long(seed=2, lr=1e30)]
    outcomes = run(folder, cases)
    assert outcomes == {"ok": 1, "diverged": 1}


MIB = 1 << 20


def measurement(name, parts, happened):
    """One with so many turns in its pass."""
    happened.append(f"{name} starts")
    try:
        for number in range(parts):
            yield True
            happened.append(f"{name}{number}")
        yield False
        happened.append(f"{name} ends")
    except GeneratorExit:
        happened.append(f"{name} is stopped")


def test_turns_go_forth_and_back_and_the_rest_follows_one_by_one():
    happened = []
    take_turns(measurement(name, 3, happened) for name in "abc")
    assert happened[:3] == ["a starts", "b starts", "c starts"]
    assert happened[3:12] == ["c0", "b0", "a0", "a1", "b1", "c1", "c2", "b2", "a2"]
    assert sorted(happened[12:]) == ["a ends", "b ends", "c ends"]


def test_who_needs_fewer_turns_waits_and_who_ends_before_or_is_alone_holds_nobody_up():
    fewer, alone, left = [], [], []
    take_turns([measurement("a", 1, fewer), measurement("b", 3, fewer)])
    assert fewer.index("a ends") > fewer.index("b2")
    take_turns([measurement("a", 2, alone)])
    assert alone == ["a starts", "a0", "a1", "a ends"]
    take_turns([(turn for turn in ()), measurement("a", 1, left)])
    assert left[-1] == "a ends"


def test_what_one_raises_stops_all_even_beside_one_that_cannot_be_stopped():
    happened = []

    def interrupted():
        yield True
        raise KeyboardInterrupt

    def stubborn():
        try:
            yield True
        finally:
            raise OSError("the disk is full")

    with pytest.raises(KeyboardInterrupt):
        take_turns([measurement("a", 2, happened), interrupted(), measurement("b", 2, happened)])
    assert {"a is stopped", "b is stopped"} < set(happened)
    del happened[:]
    with contextlib.suppress(OSError, KeyboardInterrupt):
        take_turns([measurement("a", 2, happened), stubborn(), interrupted()])
    assert "a is stopped" in happened


def test_room_is_twice_what_the_others_took_in_the_mean_and_never_for_more_than_a_comparison_has(monkeypatch):
    free, found = [1000 * MIB], []
    monkeypatch.setattr(turns, "memory", lambda: HostMemory(1 << 60, free[0]))
    room = Room()
    for left in (700, 400, 390):
        free[0] = left * MIB
        found.append(room.for_one_more())
    assert found == [True, False, False]
    room, free[0] = Room(), 1 << 60
    assert [room.for_one_more() for _ in range(turns.MOST)] == [True] * (turns.MOST - 1) + [False]
