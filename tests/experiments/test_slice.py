"""A slice of the experiments for every day: one plan that learns, one that measures, two frameworks, tiny."""

from suite.analysis.summary import summarise

EVERY_DAY = ("batch-size", "horovod-style", "stragglers")  # test_release.py runs the other plans' tiny scales


def test_a_plan_that_learns(experiment):
    rows = summarise(experiment("batch-size", "tiny").folder)
    assert [row.case.adapter for row in rows] == ["pytorch", "caffempi"]
    assert all(row.outcome == "ok" and row.lessons[0].epochs for row in rows)


def test_a_plan_that_measures(experiment):
    rows = summarise(experiment("horovod-style", "tiny").folder)
    assert {row.case.adapter for row in rows} == {"pytorch", "caffempi"}
    assert all(row.outcome == "ok" and row.rate and row.rate.value > 0 for row in rows)
    assert {row.case.strategy for row in rows} >= {"parameter_server", "data_parallel"}


def test_a_plan_with_a_straggler(experiment):
    rows = summarise(experiment("stragglers", "tiny").folder)
    assert all(row.outcome == "ok" for row in rows)
    slowed = [row.processes[0].about.notes["straggler"] for row in rows if row.case.straggler]
    assert len(slowed) == len(rows) / 2 > 0
    assert all(0 < load["taken"] < 1 for load in slowed)
