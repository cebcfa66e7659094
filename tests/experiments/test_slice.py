"""A slice of the experiments for every day: plans that learn, that measure and that do both, two frameworks, tiny."""

import pytest

from suite.analysis.inputs import MODES, mode_of
from suite.analysis.summary import summarise
from tests.experiments.conftest import stagebench
from tests.reports.browsing import CHROMIUM, chromium, fits, opened, tab

EVERY_DAY = ("batch-size", "learning", "paper", "stragglers")  # test_release.py runs the others' tiny scales


def test_a_plan_that_learns(look):
    rows = summarise(look("batch-size").folder)
    assert [row.case.adapter for row in rows] == ["pytorch", "caffempi"]
    assert all(row.outcome == "ok" and row.lessons[0].epochs for row in rows)


def test_a_plan_that_measures(look):
    measured = look("paper")
    rows = summarise(measured.folder)
    assert {row.case.adapter for row in rows} == {"pytorch", "caffempi"}
    assert all(row.outcome == "ok" and row.rate and row.rate.value > 0 for row in rows)
    assert {row.case.strategy for row in rows} >= {"single", "ddp", "data_parallel"}
    if not CHROMIUM:
        pytest.skip("no chromium on the path; STAGEBENCH_CHROMIUM may name one")
    with chromium() as browser, tab(browser, measured.site.as_uri()) as page:
        for path in sorted(measured.site.glob("*.html")):
            opened(page, path)
            fits(page)
    assert measured.pages.keys() >= {"stages.html", "scaling.html"}


def test_a_plan_that_does_both(look):
    rows = summarise(look("learning").folder)
    assert all(row.outcome == "ok" for row in rows)
    one, other = (row.lessons[0] for row in rows if row.lessons)
    assert one.distance(other) <= 1e-3
    assert {mode_of(row.case) for row in rows if row.rate} == set(MODES)


def test_a_plan_with_a_straggler(look):
    rows = summarise(look("stragglers").folder)
    assert all(row.outcome == "ok" for row in rows)
    slowed = [row.processes[0].about.notes["straggler"] for row in rows if row.case.straggler]
    assert len(slowed) == len(rows) / 2 > 0
    assert all(0 < load["taken"] < 1 for load in slowed)


NETWORK = """
from workloads.build import Builder


def network():
    b = Builder("two", (3, 64, 64), 2)
    x = b.avg_pool("pool", b.relu("relu", b.conv("conv", "input", 8, 5, stride=2)), 6, 6)
    b.head(b.dense("fc", b.flatten("flat", x), 2))
    return b
"""


def test_a_training_on_a_folder_of_two_classes(look, tmp_path):
    folder, network = tmp_path / "two-classes", tmp_path / "two.py"
    network.write_text(NETWORK)
    options = ("--classes", "2", "--images", "40", "--size", "64x64", "-o", str(folder))
    made = stagebench("data", "make", "imagenet-like", *options)
    assert made.returncode == 0, made.stderr
    rows = summarise(look("time-to-train", (f"data={folder}", f"workload={network}")).folder)
    assert [row.case.placement.ranks for row in rows] == [1, 2]
    for row in rows:
        (lesson,), (process,) = row.lessons, row.processes
        assert row.proof.passed
        assert process.about.notes["tested"] == "two-classes (80 images, 2 classes), 16 samples to test with"
        assert [epoch.samples for epoch in lesson.epochs] == [64] * 3
        assert lesson.best > 0.5
