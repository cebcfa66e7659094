"""What docs/validation.md shows keeps its bounds, and the page shows it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stagebench.suite.analysis.stats import student_t
from stagebench.suite.plan import load
from stagebench.suite.plan.resolve import resolve
from stagebench.suite.plugins import adapters, launchers, workloads
from stagebench.suite.predict.scenario import MODEL_ERROR
from tests.validation.comparing import FEW, case_of
from tests.validation.prediction import measured_inside_predicted, plan_of

DOCS = Path(__file__).parents[2] / "docs"
PREDICTION, STAGES, COMPARING = (
    json.loads((DOCS / "validation" / f"{name}.json").read_text()) for name in ("prediction", "stages", "comparing")
)
UNBOUNDED = "history of 0 runs"  # where runs differ as much as processes do, only a history tells


@pytest.mark.parametrize(("found", "cases"), [(PREDICTION, 12), (STAGES, 4)], ids=["prediction", "stages"])
def test_four_ranks_are_predicted_within_the_bounds(found, cases):
    errors = {(where, one["case"]): one["error"] for where, each in found["settings"].items() for one in each}
    assert len(errors) == cases
    assert found["median_error"] <= 0.05
    assert found["worst_error"] <= 0.15, errors
    assert found["worst_error"] == max(map(abs, errors.values()))


def test_predicted_intervals_hold_what_was_measured_and_the_model_s_error_is_that_of_its_cases():
    parts = [[one for several in found["settings"].values() for one in several] for found in (PREDICTION, STAGES)]
    page = (DOCS / "validation.md").read_text()
    for found, cases in zip((PREDICTION, STAGES), parts, strict=True):
        inside = measured_inside_predicted(cases)
        assert (found["measured_inside_predicted"], found["cases"]) == (inside, len(cases))
        assert inside >= 11 / 12 * len(cases)
        assert f"Measured inside predicted: {inside} of {len(cases)} cases." in page
    errors = [one["error"] for cases in parts for one in cases]
    squares = sum(error**2 for error in errors) / len(errors)
    assert pytest.approx(student_t(0.975, len(errors)) * squares**0.5, abs=5e-4) == MODEL_ERROR


def test_equal_runs_are_seldom_called_different_and_slow_downs_found():
    assert COMPARING["trials"] >= 500
    false = COMPARING["equal"] | COMPARING["equal_while_runs_differ"]
    assert len(false) == 9
    assert false.pop(UNBOUNDED) > 0.05
    assert max(false.values()) <= 0.05, false
    found = {what: one["found"] for what, one in COMPARING["planted"].items()}
    found |= {what: one["within_one_run"] for what, one in COMPARING["slow_downs"].items()}
    assert len(found) == 12
    assert min(found.values()) >= 0.9, found


def test_the_page_shows_these_measurements():
    page = (DOCS / "validation.md").read_text()
    for found in (PREDICTION, STAGES):
        median, worst = found["median_error"], found["worst_error"]
        assert f"Median error {median:.1%} (at most 5 %), worst {worst:.1%} (at most 15 %)." in page
    shares = COMPARING["equal"] | COMPARING["equal_while_runs_differ"]
    alone = shares.pop(UNBOUNDED)
    assert f"called different in {max(shares.values()):.1%} of comparisons at worst" in page
    assert f"they are in {alone:.1%}" in page


def row_of(*processes):
    measured = [SimpleNamespace(rate=rate, noise=SimpleNamespace(disturbed=disturbed)) for rate, disturbed in processes]
    return SimpleNamespace(case=SimpleNamespace(label="a case"), measured=measured)


def test_noise_is_drawn_from_undisturbed_processes_where_enough_remain():
    quiet = [(rate, False) for rate in (98.0, 99.0, 100.0, 101.0, 102.0)]
    found = case_of(row_of(*quiet, (50.0, True)))
    assert (found.deviations.size, found.left_out) == (5, 1)
    assert found.deviations.max() < 0.03
    all_of_them = case_of(row_of(*quiet[1:], (50.0, True)))
    assert (all_of_them.deviations.size, all_of_them.left_out) == (5, 0)
    assert case_of(row_of(*quiet[: FEW - 1])) is None


@pytest.mark.parametrize("scale", ["stages", "one-host", "hosts"])
def test_a_plan_for_one_adapter_has_no_other_s_cases(tmp_path, scale):
    (tmp_path / "plan.toml").write_text(plan_of("pytorch", scale))
    found = resolve(load(str(tmp_path / "plan.toml"), scale), adapters(), launchers(), workloads())
    assert {each.case.adapter for each in found} == {"pytorch"}
