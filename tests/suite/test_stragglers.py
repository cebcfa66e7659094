"""The time to a loss under a straggler, and where two ways cross."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from suite.analysis.exchange import Slowed, crossover, gains, stragglers, time_to
from suite.analysis.learning import Learnt
from suite.analysis.summary import summarise
from suite.contracts.case import Case, Placement
from suite.session.cases import slowed
from tests.reports import made_experiments


def way(seconds):
    """Times to the loss by share, a seed each."""
    return Slowed((), {share: {(seed, 0): time for seed, time in enumerate(times)} for share, times in seconds.items()})


WAITS = way({0.0: (1.0, 1.0, 1.0), 0.5: (2.0, 2.0, 2.0), 0.75: (4.0, 4.0, 4.0)})


def test_ways_cross_where_their_times_are_equal_by_the_shares_that_were_taken():
    freer = way({0.0: (1.9, 2.0, 2.1), 0.5: (1.9, 2.0, 2.1), 0.75: (1.9, 2.0, 2.1)})
    found = crossover(WAITS, freer)
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert 0.4 < found.low < found.value < found.high < 0.6
    freer = way({0.0: (2.0, 2.0), 0.5: (2.0, 2.0), 0.75: (2.0, 2.0)})
    waits = replace(WAITS, shares={0.5: [0.3, 0.4], 0.75: [0.7]})
    assert crossover(waits, replace(freer, shares={0.5: [0.45]})).value == pytest.approx(0.4)
    scattered = way({0.0: (1.1, 0.6, 1.8), 0.5: (1.0, 1.0, 1.0), 0.75: (1.0, 1.0, 1.0)})
    found = crossover(WAITS, scattered)
    assert found.low is None
    assert 0 < found.value < found.high < 0.5


def test_trainings_are_paired_by_their_repeat(tmp_path):
    rows = summarise(made_experiments.stragglers(tmp_path / "run"))
    for row in rows:
        row.processes = [replace(each, repeat=3) for each in row.processes]
    (found,) = stragglers(rows)
    every = [times for variant in found.variants for times in variant.seconds.values()]
    assert {repeat for times in every for _, repeat in times} == {3}


def test_a_share_that_is_no_number_is_not_taken(tmp_path):
    folder = made_experiments.stragglers(tmp_path / "run")
    for path in (folder.path / "records").iterdir():
        path.write_text(path.read_text().replace('"taken": 0.71', '"taken": "most of it"'))
    (found,) = stragglers(summarise(folder))
    known = {share: one.taken(share) is not None for one in found.variants for share in (0.5, 0.75)}
    assert known == {0.5: True, 0.75: False}


@pytest.mark.parametrize(
    ("synchronous", "knobs", "samples"), [(True, {}, 96), (False, {"backups": 1}, 64), (False, {"backups": 0}, 32)]
)
def test_samples_behind_an_update(synchronous, knobs, samples):
    case = Case("pytorch", "parameter_server", "mnist_small", Placement(ranks_per_node=3), batch=32, knobs=knobs)
    assert Slowed((SimpleNamespace(case=case, synchronous=synchronous),), {}).samples_per_update == samples


@pytest.mark.parametrize("times", [(0.5, 0.5, 0.5), (9.0, 9.0, 9.0), (math.inf, 2.0, 2.0)])
def test_ways_that_do_not_cross(times):
    assert crossover(WAITS, way(dict.fromkeys((0.0, 0.5, 0.75), times))) is None


def test_gains_are_known_of_every_share_by_times_to_the_smoothed_loss():
    found = gains(WAITS, way({0.0: (0.5, 0.5, 0.5), 0.5: (2.0,), 0.75: (math.inf, 2.0, 2.0)}))
    known = [(gain.share, gain.mean, gain.half) for gain in found]
    assert known == [(0.0, pytest.approx(math.log(2)), pytest.approx(0)), (0.5, 0, None)]
    assert [gain.detectable for gain in found] == [True, False]
    lesson = Learnt((), tuple(range(100)), tuple(1.0 - step / 100 for step in range(100)), 0.9, tuple(range(1, 101)))
    assert time_to(lesson, 0.5) == 56, "the mean over the last ten steps lags by 4.5"
    assert time_to(lesson, 0.01) == math.inf


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ("time", "raise time_limit = 60 or lower straggler = 0.75"),
        ("silence", "raise silence_limit = 30 or lower straggler = 0.75"),
        ("grace", ""),  # a rank had died
        (None, ""),  # an engine had no room
    ],
)
def test_a_straggler_is_named_where_a_limit_of_the_case_passes(why, remedy):
    place = Placement(ranks_per_node=2)
    case = Case("pytorch", "ddp", "mnist_small", place, straggler=0.75, time_limit=60.0, silence_limit=30.0)
    attempt = SimpleNamespace(evidence={"stopped": {"why": why} if why else None})
    who = "; rank 1 is a straggler that lost 75% of its time, as the plan asks: "
    assert slowed(case, attempt) == (who + remedy if remedy else "")
    assert slowed(case.on(straggler=0.0), attempt) == ""
