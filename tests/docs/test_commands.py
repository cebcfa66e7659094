"""The commands that README, CONTRIBUTING and docs/ show: the quick ones run, the others name what there is."""

import configparser
import os
import re
import shlex
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from stagebench.suite.plan import load, ready_made, resolve
from stagebench.suite.plan.networks import read
from stagebench.suite.plugins import adapters, launchers, workloads

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH = [
    line.split("#")[0].strip()
    for page in PAGES
    for line in page.read_text().splitlines()
    if re.match(r" {4,}(stagebench|(pipx run )?tox run)\b", line)
]
SHOWN = list(dict.fromkeys(EACH))
RUN = ("stagebench doctor", "stagebench list", "stagebench predict --workload")
QUICK = [line for line in SHOWN if line.startswith(RUN) or "--print-plan" in line]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def test_the_readme_is_short_and_the_page_of_experiments_names_every_plan_that_ships():
    assert len((ROOT / "README.md").read_text().split()) <= 700
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == set(ready_made())
    assert QUICK
    assert any(line.startswith("pipx run tox run -m bench") for line in SHOWN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target, _ in LINK.findall(page.read_text()):
        assert "://" in target or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_plan_and_the_network_that_a_page_shows_are_taken(tmp_path):
    page = (ROOT / "docs" / "plans.md").read_text()
    shown = dict(re.findall(r"```(toml|python)\n(.*?)```", page, re.DOTALL))
    (tmp_path / "plan.toml").write_text(shown["toml"])
    resolved = resolve(load(tmp_path / "plan.toml"), adapters(), launchers(), workloads())
    assert [case.case.workload for case in resolved] == ["alexnet", "resnet50"]
    assert not [case.reason for case in resolved if case.outcome == "unsupported"]
    (tmp_path / "my_network.py").write_text(shown["python"])
    graph = read(tmp_path / "my_network.py").graph()
    assert (graph.name, graph.input_shape, graph.classes) == ("mine", (3, 32, 32), 10)


@pytest.mark.parametrize("command", QUICK)
def test_quick_commands_run(command):
    done = subprocess.run(shlex.split(command), cwd=ROOT, capture_output=True, text=True, timeout=300)
    # doctor says with 1 that no framework is ready, which a machine without them may truly be
    assert done.returncode in ((0, 1) if "doctor" in command else (0,)), done.stderr
    assert done.stdout.strip()


@cache
def helped(command):
    """What a command's --help says."""
    variables = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=300, env=variables)
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.mark.parametrize("command", [line for line in SHOWN if line.startswith("stagebench") and line not in QUICK])
def test_every_option_shown_exists(command):
    words = shlex.split(command)
    name = tuple(words[: 4 if words[1:3] == ["data", "make"] else 3 if words[1] in ("data", "env", "lab") else 2])
    words = words[: words.index("--")] if "--" in words else words  # another command's options follow
    told = helped(name)
    for option in (word for word in words if word.startswith("-")):
        assert option.partition("=")[0] in told


@pytest.mark.parametrize("command", [line for line in SHOWN if "tox" in line])
def test_every_tox_environment_shown_exists(command):
    config = configparser.RawConfigParser()
    config.read(ROOT / "tox.ini")
    words = shlex.split(command)
    for flag, name in pairwise(words):
        if flag == "-e":
            assert f"testenv:{name}" in config
        if flag == "-m":
            assert re.search(rf"^{name} = ", config["tox"]["labels"], re.MULTILINE)
