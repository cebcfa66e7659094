"""Cases written as a plan: read and resolved again, they are the same cases."""

import tomllib

import pytest

from stagebench.reports.pages.run import Report
from stagebench.reports.pages.speed import contests, plan_of
from stagebench.suite.analysis.summary import summarise
from stagebench.suite.contracts.case import Placement
from stagebench.suite.plan import load, resolve
from stagebench.suite.plan.text import Block, plan_text, value_text
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.worker.case_parts import Input, Sampling, Training
from stagebench.workloads.networks import by_name

PLAN = """
name = "sweep"
[sampling]
quick = true
steps = 7
seconds = 0.5
processes = 2
[[cases]]
adapter = "pytorch"
strategy = "single"
workload = "mnist_small"
batch = [8, 24]
threads = [1, 2]
precision = ["float32", "float64"]
knobs.memory_format = ["contiguous", "channels_last"]
passes = ["native"]
[[cases]]
adapter = "pytorch"
strategy = "ddp"
workload = "mnist_small"
ranks = 2
launcher = "local"
tuning = ["default", "tuned"]
binding = "cores"
seed = 7
time_limit = 99.5
knobs.bucket_cap_mb = ["auto", 3]
[[cases]]
adapter = "reference"
strategy = "single"
workload = "mnist_small"
precision = "float64"
optimiser = ["sgd", "adam"]
"""


def resolved(path):
    return resolve(load(path), adapters(), launchers(), workloads())


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "sweep.toml").write_text(PLAN)
    return resolved(tmp_path / "sweep.toml")


def test_every_case_comes_back_with_its_id_and_more_than_are_usual_are_meant(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("stagebench.suite.plan.text.MOST_CASES", len(plan) - 1)
    assert len(plan) == 16 + 4 + 2
    written = plan_text("again", 'a "title"', "two\nlines", [Block(one.case, one.case.label) for one in plan])
    (tmp_path / "again.toml").write_text(written)
    assert [one.case for one in resolved(tmp_path / "again.toml")] == [one.case for one in plan]
    assert tomllib.loads(written)["most_cases"] == len(plan)
    monkeypatch.setattr("stagebench.suite.plan.text.MOST_CASES", len(plan))
    assert "most_cases" not in plan_text("x", "", "", [Block(one.case, "") for one in plan])


def test_a_batch_that_all_devices_share_and_a_knob_that_is_a_list_come_back(plan):
    ddp = next(one.case for one in plan if one.case.strategy == "ddp")
    shared = ddp.on(batch=4, scaling="strong", knobs={**ddp.knobs, "bucket_cap_mb": [1, 3]})
    (block,) = tomllib.loads(plan_text("x", "", "", [Block(shared, "")]))["cases"]
    assert (block["batch"], block["scaling"]) == (8, "strong")
    assert block["knobs"]["bucket_cap_mb"] == [[1, 3]]  # one value, not a sweep of two


def test_the_best_plan_holds_the_winners_and_what_they_were_compared_with(plan, run, tmp_path):
    for one in plan:
        if one.outcome is None:
            run.proven(one.case, repeats=2, slower=8 / one.case.batch / one.case.placement.threads)
    report = Report(run.folder, summarise(run.folder))
    found = contests(report.rows)
    best = [best for contest in found for best in contest.winners]
    wanted = {best.row.id for best in best} | {best.default.id for best in best}
    assert len(wanted) > 2
    path = tmp_path / "best.toml"
    path.write_text(plan_of(report, found))
    assert {one.case.id for one in resolved(path)} == wanted
    assert "times the default" in path.read_text()
    run.folder.keep_network(by_name()[best[0].row.case.workload].graph())
    kept = plan_of(report, found)
    assert tomllib.loads(kept)["cases"][0]["workload"] == f"networks/{best[0].row.case.workload}.json"
    assert "beside run.json" in kept


def test_how_data_are_read_is_written_down(plan):
    read = {"page_cache": "cold", "prefetch": 5, "repeat": 4, "augment": "random", "on_error": "skip", "format": "x"}
    place = {"nodes": 2, "devices": 4, "device": "cuda", "hosts": ("a", "b")}
    how = {"input": Input(mode="memory", **read), "placement": Placement(ranks_per_node=3, **place)}
    case = plan[0].case.on(data="digits", readers=3, sampling=Sampling(), **how)
    (written,) = tomllib.loads(plan_text("x", "", "", [Block(case, "")]))["cases"]
    expected = {**read, **place, "data_mode": "memory", "data": "digits", "readers": 3, "ranks": 3, "hosts": ["a", "b"]}
    assert {key: written[key] for key in expected} == expected


def test_values_come_back_letters_as_letters_and_what_a_plan_cannot_hold_is_refused():
    for given in (True, 3, 1e-05, 'a "b"\\ \x7f é\n', [1, ["x", False]]):
        assert tomllib.loads(f"x = {value_text(given)}")["x"] == given
    assert value_text("é") == '"é"'
    with pytest.raises(ValueError, match="None cannot be written"):
        value_text(None)


def test_what_a_case_learns_by_is_written_down_where_one_learns(plan):
    first = plan[0].case
    learning = first.on(passes=("train",), training=Training(epochs=3, target=0.9))
    found = tomllib.loads(plan_text("x", "", "", [Block(first, ""), Block(learning, "")]))
    assert found["training"] == {"epochs": 3, "held_out": 0.2, "target": 0.9, "patience": 0}
    assert "training" not in tomllib.loads(plan_text("x", "", "", [Block(first, "")]))
