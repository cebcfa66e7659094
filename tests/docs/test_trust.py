"""docs/trust.md is what its checks found, and a check is what its script's last line says."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from stagebench.suite.analysis.summary import summarise
from stagebench.suite.results.records import METHOD
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun, case_of
from tests.support.noise import dealt, mixed
from tests.validation import bench, conclusions, inference_native, real_speeds, transformer_native, trust
from tests.validation.figures import figure, told

BENCHMARKS = Path(__file__).parents[1] / "validation"
MADE = trust.Check("made", "Is it so?", ("x",))
EMPTY = "print('{\"figures\": []}')"


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check is not run again for its bounds' sake."""
    monkeypatch.setattr(trust, "LONGEST_S", 0.0)


def check(folder: Path, script: str, **changes: object) -> dict[str, object]:
    """What is kept of a check whose script this is."""
    path = folder / "script.py"
    path.write_text(script)
    return trust.run(trust.Check("made", "Is it so?", (str(path),), **changes), folder / "trust")


def test_the_page_is_that_of_the_results_each_of_a_check_with_a_script() -> None:
    there = (trust.DOCS / "trust.md").read_text()
    assert there == trust.page(trust.DOCS / "trust", trust.CHECKS), "python tests/validation/trust.py --page"
    assert all((BENCHMARKS / each.words[0]).exists() for each in trust.CHECKS)
    kept = {path.stem for path in (trust.DOCS / "trust").glob("*.json")}
    assert kept <= {each.name for each in trust.CHECKS}


def test_figures_are_held_against_their_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told([figure("speed", 1.02, interval=(1.0, 1.04), at_least=0.99), figure("pairs", 12)]) == 0
    good = capsys.readouterr().out
    assert told([figure("effect", 0.7, "%", at_most=0.5), figure("width", None, at_most=6, why="no pairs")]) == 1
    bad = capsys.readouterr().out
    for line, words in ((good, "1 of 1 bounds"), (bad, "0 of 2 bounds")):
        check(tmp_path, f"print({line.strip()!r})")
        page = trust.page(tmp_path / "trust", [MADE], figures=True)
        assert words in page
    assert "- made: effect: 0.7 %, at most 0.5 wanted" in page
    assert "| width | no pairs |  | at most 6 | **no** |" in page


@pytest.mark.parametrize(("bound", "longest_s", "runs"), [(0.99, 1800.0, 6), (0.99, 0.0, 1), (0.85, 1800.0, 1)])
def test_a_check_is_run_until_its_bound_is_settled_or_half_an_hour_is_over(
    tmp_path, monkeypatch, bound, longest_s, runs
):
    monkeypatch.setattr(trust, "LONGEST_S", longest_s)
    line = {"figures": [figure("speed", 1.0, interval=(0.9, 1.1), at_least=bound)]}
    assert check(tmp_path, f"import json; print(json.dumps({line!r}))")["runs"] == runs


@pytest.mark.parametrize(
    ("low", "high", "kept"), [(0.98, 1.0, True), (0.98, 0.995, False), (0.96, 1.01, False), (0.99, 1.2, True)]
)
def test_an_adapter_is_as_fast_as_a_hand_written_loop_by_both_ends_of_the_interval(low, high, kept):
    for script in (inference_native, transformer_native):
        found = {"ratio": (low + high) / 2, "low": low, "high": high, "apart": 0.0, "loss": 0.0}
        named = {"framework": "pytorch", "network": "resnet50", "batch": 1}
        assert told(list(script.figures({**found, **named}))) == (not kept)


def test_a_check_without_a_result_is_named(tmp_path):
    check(tmp_path, EMPTY)
    page = trust.page(tmp_path / "trust", [MADE, trust.Check("other", "And that?", ("y",))])
    assert "Not run yet: `other`." in page
    assert "Not run yet" not in trust.page(tmp_path / "trust", [MADE])


def test_what_was_stopped_goes_on_with_the_checks_that_have_no_result_of_this_method(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "DOCS", tmp_path)
    made = tmp_path / "script.py"
    made.write_text(EMPTY)
    names = ("fresh", "failed", "older", "missing")
    monkeypatch.setattr(trust, "CHECKS", [trust.Check(name, "Is it so?", (str(made),)) for name in names])
    kept = tmp_path / "trust"
    kept.mkdir()
    for name, words in (("fresh", {"figures": []}), ("failed", {"failed": "oh"}), ("older", {"figures": []})):
        words = {"name": name, "method": METHOD - (name == "older"), "commit": "then", "load": [0, 0, 0], **words}
        (kept / f"{name}.json").write_text(json.dumps(words))

    def ran(*options: str) -> set[str]:
        monkeypatch.setattr(sys, "argv", ["trust.py", "--wait", "0", *options])
        before = {path: path.stat().st_mtime_ns for path in kept.glob("*.json")}
        assert trust.main() == 0
        return {path.stem for path in kept.glob("*.json") if before.get(path) != path.stat().st_mtime_ns}

    assert ran() == {"failed", "older", "missing"}
    assert ran() == set()
    assert ran("--only", "fresh") == {"fresh"}
    assert ran("--again") == set(names)


@pytest.mark.parametrize(
    ("script", "why"),
    [("print('oh')", "exit code 0: oh"), ("raise SystemExit(3)", "exit code 3: it printed nothing")],
)
def test_a_check_that_says_nothing_has_failed(tmp_path: Path, script: str, why: str) -> None:
    result = check(tmp_path, script)
    assert result["failed"] == why
    assert json.loads((tmp_path / "trust" / "made.json").read_text())["failed"] == why
    assert f"It failed: {why}" in trust.page(tmp_path / "trust", [MADE], figures=True)


@pytest.mark.parametrize(
    ("value", "interval", "bounds", "verdict"),
    [
        (1.0, (0.995, 1.01), {"at_least": 0.99}, "yes"),
        (1.0, (0.98, 1.01), {"at_least": 0.99}, "yes (not settled)"),
        (0.985, (0.97, 1.0), {"at_least": 0.99}, "**no** (not settled)"),
        (0.97, (0.96, 0.98), {"at_least": 0.99}, "**no**"),
        (1.0, (-6.0, 4.0), {"at_least": -5.0, "at_most": 5.0}, "yes (not settled)"),
        (7.0, (6.0, 8.0), {"at_least": -5.0, "at_most": 5.0}, "**no**"),
        (1.0, None, {"at_least": 0.99}, "yes"),
        (1.0, (0.9, 1.1), {}, ""),
    ],
)
def test_a_bound_within_the_interval_is_not_settled(tmp_path, value, interval, bounds, verdict):
    check(tmp_path, f"print({json.dumps({'figures': [figure('speed', value, '', interval, **bounds)]})!r})")
    page = trust.page(tmp_path / "trust", [MADE], figures=True)
    assert f"| {verdict} |\n" in page
    assert ("1 of 1 bounds are kept, 1 of these not settled" in page) == (verdict == "yes (not settled)")


def test_a_result_keeps_commit_and_method_and_an_older_one_says_so(tmp_path: Path) -> None:
    result = check(tmp_path, EMPTY)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=trust.ROOT, capture_output=True, text=True, check=True)
    assert str(result["commit"]).removesuffix("-dirty") == head.stdout.strip()
    assert result["method"] == METHOD
    page = trust.page(tmp_path / "trust", [MADE], figures=True)
    assert f"commit {head.stdout[:10]}" in page
    assert f"method {METHOD}" in page
    assert "older method" not in page
    (tmp_path / "trust" / "made.json").write_text(json.dumps(dict(result, method=METHOD - 2)))
    older = trust.page(tmp_path / "trust", [MADE], figures=True)
    assert f"the newest, {METHOD}:\n\n- of method {METHOD - 2}: `made`\n" in older


def test_what_a_check_starts_is_its_own_and_what_runs_beside_it_is_others(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < {}: pass"
    other = subprocess.Popen([sys.executable, "-c", busy.format(100)])
    try:
        before = cpu_s(other.pid)
        _, use = trust.beside_others(lambda: subprocess.run([sys.executable, "-c", busy.format(1)], check=True))
        beside = cpu_s(other.pid) - before
    finally:
        other.kill()
        other.wait()
    if use is None:
        pytest.skip("this system counts nothing")
    assert use.own_cpu_s is not None
    assert use.own_cpu_s >= 0.9
    assert use.busy_cpu_s - use.own_cpu_s > beside - 0.1
    shares = trust.shares(use)
    assert shares is not None
    assert shares["used"] > 0.05


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("used", "stolen", "idle"), [(0.02, 0.0, True), (0.4, 0.0, False), (0.0, 0.05, False)])
def test_a_machine_that_was_not_idle_is_called_so(tmp_path: Path, used: float, stolen: float, idle: bool) -> None:
    result = dict(check(tmp_path, EMPTY), others_meanwhile={"used": used, "stolen": stolen})
    (tmp_path / "trust" / "made.json").write_text(json.dumps(result))
    page = trust.page(tmp_path / "trust", [MADE], figures=True)
    assert ("**The machine was not idle**" in page) != idle
    assert f"others used {100 * used:g} % of the processors during the check" in page


def test_several_runs_of_a_check_are_one_figure_each(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    script = f"""
import json, pathlib
path = pathlib.Path({str(counted)!r})
count = len(path.read_text()) if path.exists() else 0
path.write_text("x" * (count + 1))
value = [1.03, 0.98, 1.00, 1.00, 0.99, 1.01][count]
speed = dict(what="speed", value=value, low=0.9, high=1.1, at_least=0.99, unit="")
loss = dict(what="loss", value=[0, 2e-7, 1e-7, 0, 0, 0][count], unit="", at_most=2e-6)
print(json.dumps(dict(figures=[speed, loss])))
"""
    result = check(tmp_path, script, runs=6)
    speed, loss = result["figures"]
    assert (speed["value"], speed["low"], speed["high"]) == (1.00, 0.98, 1.03)
    assert loss["value"] == 2e-7
    assert "6 times" in trust.page(tmp_path / "trust", [MADE], figures=True)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A run of two processes a case, and a case that was refused."""
    run = MadeRun(tmp_path / "run")
    for adapter in ("pytorch", "caffempi", "mxnet"):
        run.proven(case_of(adapter), repeats=2)
    run.refuse(case_of("cntk"), "unsupported", "not here")
    return run.folder.path


def test_real_speeds_of_a_run_keep_their_origin_and_differ_as_much_as_they_did(made: Path) -> None:
    (run,) = real_speeds.of_runs([made], least=2)
    assert {"created", "plan", "command", "commit", "method", "cpu", "cores"} < set(run)
    speeds, deviations = list(run["rows"].values()), real_speeds.deviations([run])
    assert len(deviations) == len(speeds) == 3
    for own, found in zip(speeds, deviations, strict=True):
        assert abs(found.sum()) < 1e-12
        assert np.isclose(np.ptp(found), 2**0.5 * abs(np.log(own[1] / own[0])))
    assert real_speeds.of_runs([made])[0]["rows"] == {}


def test_rows_that_real_processes_are_dealt_to_are_equal() -> None:
    random = np.random.default_rng(1)
    own = random.normal(0, 0.02, 12)
    rates = dealt(random, 2, 6, [own, own[:5]])
    found = sorted(np.log(rate / 100) for row in rates.values() for rate in row.values())
    assert np.allclose(found, sorted(own))
    assert len(mixed(random, 3, 4, [own])) == 3
    simulated = conclusions.machines([{"rows": {"a": list(100 * np.exp(own))}}])
    wrong, _ = conclusions.after_rounds({conclusions.ONE_ROW: simulated[conclusions.ONE_ROW]}, len(own), 400)
    assert [where for _, where in wrong] == ["real, one row, 2 rows, 5 rounds", "real, one row, 4 rows, 3 rounds"]
    assert max(share for share, _ in wrong) < 0.1


def test_a_bench_is_judged_by_when_its_report_and_its_first_chart_stand(made: Path) -> None:
    run = made
    folder = RunFolder.open(run)
    first = min(datetime.fromisoformat(record.started).timestamp() for record in folder.records())
    for number, path in enumerate(sorted((run / "records").iterdir())):
        os.utime(path, (first + 10 * number, first + 10 * number))
    found = {each["what"]: each for each in bench.figures(folder, first - 30, first + 19.5 * 60)}
    assert found["until the report exists"]["value"] == 20
    assert found["processes of the case with fewest"]["value"] == 2
    assert found["from the first measurement until the first chart exists"]["value"] > 0
    row = next(row for row in summarise(folder) if row.rates)
    paths = sorted(path.stat().st_mtime for path in (run / "records").glob(f"{row.id}-r*.json"))
    assert bench.stands(folder, [row], first) == paths[0] - first
    without = next(row for row in summarise(folder) if row.outcome == "unsupported")
    assert bench.stands(folder, [row, without], first) is None
