"""docs/trust.md is what its checks found, and a check is what its script's last line says."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import trust
from tests.benchmarks.figures import figure, told

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def check(folder: Path, script: str, **changes: object) -> dict[str, object]:
    """What is kept of a check whose script this is."""
    path = folder / "script.py"
    path.write_text(script)
    return trust.run(trust.Check("made", "Is it so?", (str(path),), **changes), folder / "trust")


def test_the_page_is_that_of_the_results() -> None:
    there = (trust.DOCS / "trust.md").read_text()
    assert there == trust.page(trust.DOCS / "trust"), "python tests/benchmarks/trust.py --page"


def test_every_check_has_its_script_and_every_result_its_check() -> None:
    assert all((BENCHMARKS / each.words[0]).exists() for each in trust.CHECKS)
    kept = {path.stem for path in (trust.DOCS / "trust").glob("*.json")}
    assert kept <= {each.name for each in trust.CHECKS}


def test_figures_are_held_against_their_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told([figure("speed", 1.02, interval=(1.0, 1.04), at_least=0.99), figure("pairs", 12)]) == 0
    good = capsys.readouterr().out
    assert told([figure("effect", 0.7, "%", at_most=0.5), figure("width", None, at_most=6, why="no pairs")]) == 1
    bad = capsys.readouterr().out
    made = trust.Check("made", "Is it so?", ("script.py",))
    for line, words in ((good, "1 of 1 bounds"), (bad, "0 of 2 bounds")):
        check(tmp_path, f"print({line.strip()!r})")
        page = trust.page(tmp_path / "trust", [made])
        assert words in page
    assert "- made: effect: 0.7 %, at most 0.5 wanted" in page
    assert "| width | no pairs |  | at most 6 | **no** |" in page


@pytest.mark.parametrize(
    ("script", "why"),
    [("print('oh')", "exit code 0: oh"), ("raise SystemExit(3)", "exit code 3: it printed nothing")],
)
def test_a_check_that_says_nothing_has_failed(tmp_path: Path, script: str, why: str) -> None:
    result = check(tmp_path, script)
    assert result["failed"] == why
    assert json.loads((tmp_path / "trust" / "made.json").read_text())["failed"] == why
    assert f"It failed: {why}" in trust.page(tmp_path / "trust", [trust.Check("made", "Is it so?", ("x",))])


def test_several_runs_of_a_check_are_one_figure_each(tmp_path: Path) -> None:
    counted = tmp_path / "count"
    script = f"""
import json, pathlib
path = pathlib.Path({str(counted)!r})
count = len(path.read_text()) if path.exists() else 0
path.write_text("x" * (count + 1))
speed = dict(what="speed", value=[1.03, 0.98, 1.00][count], low=0.9, high=1.1, at_least=0.99, unit="")
print(json.dumps(dict(figures=[speed, dict(what="loss", value=[0, 2e-7, 1e-7][count], unit="", at_most=2e-6)])))
"""
    result = check(tmp_path, script, runs=3)
    speed, loss = result["figures"]
    assert (speed["value"], speed["low"], speed["high"]) == (1.00, 0.98, 1.03)
    assert loss["value"] == 2e-7
    assert "3 times" in trust.page(tmp_path / "trust", [trust.Check("made", "Is it so?", ("x",))])
