"""The list of steps for a card: what runs, in which order, and what is left of it when the time ends."""

import re
import tarfile
import time
import tomllib
from pathlib import Path

import pytest

from tests.validation import on_a_card
from tests.validation.on_a_card import TIME_UP, Step

DOCS = Path(__file__).parents[2] / "docs" / "gpu.md"


@pytest.fixture
def steps(monkeypatch):
    """A function that puts steps in the place of those that a card runs; each is Python's code."""

    def put(**code):
        monkeypatch.setattr(on_a_card, "STEPS", {name: Step(("-c", text), 8.0) for name, text in code.items()})

    return put


def results_of(names, out, seconds=600.0):
    return dict(on_a_card.ended(names, out, time.monotonic() + seconds, rehearse=False))


def test_a_step_that_fails_or_hangs_does_not_stop_the_next(steps, tmp_path):
    steps(
        fails="raise SystemExit(3)", hangs="import time; print('began', flush=True); time.sleep(600)", passes="print(1)"
    )
    found = results_of(["fails", "hangs", "passes"], tmp_path)
    assert [result["ended"] for result in found.values()] == [3, "stopped after 8 s", 0]
    assert (tmp_path / "hangs.txt").read_text() == "began\n"


def test_a_step_that_the_time_ended_is_no_failure_and_the_next_is_not_begun(steps, tmp_path):
    steps(long="import time; time.sleep(600)", later="print(1)")
    results = results_of(["long", "later"], tmp_path, 0.3)
    assert {name: result["ended"] for name, result in results.items()} == {"long": TIME_UP}


def test_steps_that_time_nothing_run_side_by_side(monkeypatch, tmp_path):
    wait = "import pathlib, time\npathlib.Path('{out}/{step}').touch()\n"
    wait += "while not pathlib.Path('{out}/%s').exists(): time.sleep(0.01)"
    both = {name: Step(("-c", wait % other), 300.0, beside="them") for name, other in (("a", "b"), ("b", "a"))}
    monkeypatch.setattr(on_a_card, "STEPS", both)
    assert {result["ended"] for result in results_of(["a", "b"], tmp_path).values()} == {0}


def test_what_a_missing_step_needs_runs_again_where_its_files_are_not(monkeypatch, tmp_path):
    steps = {"data": Step(("-c", "")), "done": Step(("-c", "")), "row": Step(("-c", ""), needs=("data",))}
    monkeypatch.setattr(on_a_card, "STEPS", steps)
    record = {"data": {"ended": 0}, "done": {"ended": 0}}
    assert on_a_card.due(record, tmp_path, None) == ["data", "row"]
    (tmp_path / "data.txt").touch()
    assert on_a_card.due(record, tmp_path, None) == ["row"]
    monkeypatch.setattr(on_a_card, "STEPS", {name: Step(("-c", "")) for name in ("a", "b", "c")})
    record = {"a": {"ended": 3}, "b": {"ended": TIME_UP}}
    assert on_a_card.due(record, tmp_path, None) == ["a", "b", "c"]
    for tried in ("a", "b"):
        (tmp_path / f"{tried}.txt").touch()
    assert on_a_card.due(record, tmp_path, None) == ["b", "c", "a"]


def test_a_row_of_the_paper_is_kept_alone_with_its_batch_divided():
    text = tomllib.loads(on_a_card.plan(on_a_card.STEPS["paper-pytorch-alexnet"], rehearse=False))
    card = text["scale"]["card"]
    assert card["divide_batch"] == 4
    assert (card["keep"]["adapter"], card["keep"]["workload"], card["keep"]["device"]) == ("pytorch", "alexnet", "cuda")


def test_steps_need_what_comes_before_them_and_the_page_names_those_that_there_are():
    names = list(on_a_card.STEPS)
    for name, step in on_a_card.STEPS.items():
        assert {names.index(need) for need in step.needs} <= set(range(names.index(name))), name
    table = DOCS.read_text().partition("## Not proven yet")[2].partition("What wants more")[0]
    for row in re.findall(r"^\|.*\|([^|]*)\|$", table, flags=re.MULTILINE)[2:]:
        for named in re.findall(r"`([^`]*)`", row):
            assert any(name.startswith(named.rstrip("…")) for name in on_a_card.STEPS), named


def test_an_archive_holds_the_record_and_the_results_less_the_bundles(tmp_path):
    out, record = tmp_path / "out", tmp_path / "on_a_card.json"
    (out / "run" / "bundles").mkdir(parents=True)
    (out / "run" / "bundles" / "code.py").touch()
    (out / "step.txt").touch()
    record.write_text("{}")
    on_a_card.pack(out, record, tmp_path / "all.tar.gz")
    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        assert {"on_a_card.json", "results/step.txt"} <= set(archive.getnames())
        assert not any("code.py" in name for name in archive.getnames())
