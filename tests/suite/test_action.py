"""The GitHub Action's script, run as it is: a plan of a repository is measured on its base branch and here."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stagebench.suite.analysis.compare_runs import EXIT_CODES

ACTION = Path(__file__).parents[2] / ".ci" / "action"
NETWORK = """from stagebench.workloads.build import Builder

def network():
    b = Builder("little", (3, 8, 8), 10)
    b.head(b.dense("fc", b.flatten("flat", "input"), 10))
    return b
"""
PLAN = """name = "little"
[sampling]
quick = true
processes = 2
warmup_steps = 2
warmup_limit = 0.1
steps = 4
seconds = 0
[[cases]]
adapter = "reference"
strategy = "single"
workload = "./network.py"
batch = 4
precision = "float64"
data = "synthetic"
passes = ["native"]
"""


def git(folder: Path, *words: str) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "network.py").write_text(NETWORK)
    git(folder, "init", "--quiet")
    git(folder, "add", "network.py")
    git(folder, "commit", "--quiet", "-m", "a network")
    return folder


def measured(repository: Path, output: Path, plan: str = "plan.toml") -> tuple[int, str]:
    """Run the script against the branch `main`; return its exit code, and the comment."""
    given = {"PLAN": plan, "BASE": "main", "OUTPUT": str(output), "PREPARE": "touch prepared", "THRESHOLD": "5%"}
    done = subprocess.run([ACTION / "measure.sh"], cwd=repository, env={**os.environ, **given}, check=False)
    return done.returncode, (output / "comment.md").read_text()


def test_a_base_without_the_plan_is_nothing_to_compare_with(repository: Path, tmp_path: Path) -> None:
    (repository / "plan.toml").write_text(PLAN)
    for plan in ("plan.toml", str(repository / "plan.toml")):
        code, comment = measured(repository, tmp_path / "out", plan)
        assert (code, "`main` has no `plan.toml`" in comment) == (0, True)
    assert git(repository, "worktree", "list").count("\n") == 1, "the base's checkout is gone"


@pytest.mark.slow
def test_both_checkouts_are_measured_and_the_comment_is_the_comparison(repository: Path, tmp_path: Path) -> None:
    (repository / "plan.toml").write_text(PLAN)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "a plan")
    git(repository, "checkout", "--quiet", "-b", "change")
    code, comment = measured(repository, tmp_path / "out", str(repository / "plan.toml"))
    marker, head, _, columns, _, row, *_ = comment.splitlines()
    verdict = re.fullmatch(r"\*\*(.*)\*\*: `head` against `base`", head)
    assert verdict, comment
    assert EXIT_CODES[verdict[1]] == code != 2, comment
    assert marker == "<!-- stagebench -->"
    assert [cell.strip() for cell in columns.split("|")][1:4] == ["case", "verdict", "change"]
    assert "reference/single little 1 rank batch 4" in row
    assert (repository / "prepared").exists()
    assert git(repository, "worktree", "list").count("\n") == 1


def test_an_input_of_the_action_is_a_value_and_never_code() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert not [step["run"] for step in steps if "${{" in step["run"]]
    used = set(re.findall(r"inputs\.(\w+)", str([step["env"] for step in steps])))
    assert used == set(action["inputs"])
    script = (ACTION / "measure.sh").read_text()
    for name in set(steps[1]["env"]):
        assert f"${{{name}:" in script or f"${name}" in script, name
