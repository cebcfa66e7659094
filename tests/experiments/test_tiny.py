"""Every experiment, tiny, with pages that answer its question."""

import pytest

from stagebench.suite.analysis.inputs import MODES, mode_of
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.plan import ready_made
from tests.reports.browsing import CHROMIUM, chromium, fits, opened, tab

CLOSER = ("batch-size", "learning", "paper", "readers", "serving", "stragglers")  # looked at more closely below


# Unproven: every kind of GoogLeNet's layers is proven by the conformance suite, the whole before a release.
def test_a_plan_that_measures_and_one_of_its_network(look):
    measured = look("paper", proofs=False)
    look("readers", proofs=False)
    rows = summarise(measured.folder)
    assert {row.case.adapter for row in rows} == {"caffempi"}
    assert all(row.outcome == "ok" and row.rate and row.rate.value > 0 for row in rows)
    assert {row.case.strategy for row in rows} >= {"single", "data_parallel"}
    if not CHROMIUM:
        pytest.skip("no chromium on the path; STAGEBENCH_CHROMIUM may name one")
    with chromium() as browser, tab(browser, measured.site.as_uri()) as page:
        for path in sorted(measured.site.glob("*.html")):
            opened(page, path)
            fits(page)
    assert measured.pages.keys() >= {"stages.html", "scaling.html"}


@pytest.mark.parametrize("name", [name for name in ready_made() if name not in CLOSER])
def test_a_plan_answers_its_question(name, look):
    look(name)


def test_a_plan_that_learns(look):
    rows = summarise(look("batch-size").folder)
    assert [row.case.adapter for row in rows] == ["pytorch", "caffempi"]
    assert all(row.outcome == "ok" and row.lessons[0].epochs for row in rows)


def test_a_plan_that_does_both(look):
    rows = summarise(look("learning").folder)
    assert all(row.outcome == "ok" for row in rows)
    one, other = (row.lessons[0] for row in rows if row.lessons)
    assert one.distance(other) <= 1e-3
    assert {mode_of(row.case) for row in rows if row.rate} == set(MODES)


def test_a_plan_behind_model_servers(look):
    rows = summarise(look("serving", ("bound_share=0.9",)).folder)
    assert {row.case.serving.model_server for row in rows} == {"inprocess", "mosec", "litserve"}
    for row in (row for row in rows if row.served):
        assert row.served.compared_answers > 0
        assert row.served.wrong == 0


def test_a_plan_with_a_straggler(look):
    rows = summarise(look("stragglers").folder)
    assert all(row.outcome == "ok" for row in rows)
    slowed = [row.processes[0].about.notes["straggler"] for row in rows if row.case.straggler]
    assert len(slowed) == len(rows) / 2 > 0
    assert all(0 < load["taken"] < 1 for load in slowed)


def test_a_training_on_a_folder_of_two_classes(look, two_classes):
    rows = summarise(look("time-to-train", two_classes).folder)
    assert [row.case.placement.ranks for row in rows] == [1, 2]
    for row in rows:
        (lesson,), (process,) = row.lessons, row.processes
        assert row.proof.passed
        assert process.about.notes["tested"] == "two-classes (80 images, 2 classes), 16 samples to test with"
        assert [epoch.samples for epoch in lesson.epochs] == [64] * 3
        assert lesson.best > 0.5


STANDSTILL = """
name = "standstill"

[defaults]
workload = "mnist_small"
data = "digits"
batch = 128
lr = 1e-12
passes = ["train"]
ranks = 2

[sampling]
quick = true
processes = 1

[training]
epochs = 6
patience = 2

[[cases]]
adapter = "pytorch"
strategy = "ddp"

[[cases]]
adapter = "caffempi"
strategy = "data_parallel"
"""


def test_all_ranks_end_early_in_the_same_epoch(experiment, tmp_path):
    """At a rate that changes nothing, no epoch is better than the first; that needs no proof."""
    (tmp_path / "standstill.toml").write_text(STANDSTILL)
    rows = summarise(experiment(str(tmp_path / "standstill.toml"), proofs=False).folder)
    trained = {row.case.adapter: [len(one.epochs) for one in row.lessons] for row in rows}
    assert trained == {"pytorch": [3], "caffempi": [3]}
    assert all(row.case.placement.ranks == 2 and row.outcome == "ok" for row in rows)
