"""Cases that will be compared stand side by side and measure in turns."""

import sys

import pytest

from suite.analysis.stats import ratio
from suite.analysis.summary import summarise
from suite.errors import Interrupted
from suite.session.cases import Runnable, turn_groups
from suite.worker.messages import Progress
from tests.suite.measuring import BRIEF, Listener, case, run

LONG = BRIEF._replace(seconds=1.2, processes=1)  # two parts and more


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
