"""Runs a plan as a person does, and its report; the minutes of all are told at the end."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stagebench.cluster.lab.state import State, entering, environment
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.answers import unanswered

GIVE_UP = 3600.0  # seconds after which a plan is no longer waited for
MINUTES = pytest.StashKey[dict[tuple[str, str], float]]()  # by plan and scale; proofs and report included


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="fail when a plan took longer at its scale `small`")


def pytest_configure(config):
    config.stash[MINUTES] = {}


@pytest.fixture
def experiment(tmp_path, request):
    """Measures a plan at a scale, changed, unproven or over a laboratory's hosts, and reports; what came of it."""

    def run(name, scale="", laboratory=None, changes=(), proofs=True):
        began, folder = time.monotonic(), tmp_path / Path(name).stem
        site = folder.with_name(f"{folder.name}-site")
        scaled = ("--scale", scale) if scale else ()
        hosts = ("--hosts", ",".join(laboratory.layout.hosts)) if laboratory else ()
        changed = [word for change in changes for word in ("--set", change)]
        unproven = () if proofs else ("--no-proofs",)
        words = ("run", name, *scaled, *changed, *hosts, *unproven, "-o", str(folder), "--json")
        measured = stagebench(*words, laboratory=laboratory)
        assert measured.returncode == 0, measured.stdout + measured.stderr
        reported = stagebench("report", str(folder), "-o", str(site))
        assert reported.returncode == 0, reported.stderr
        request.config.stash[MINUTES][Path(name).stem, scale] = (time.monotonic() - began) / 60
        pages = {page.name: page.read_text() for page in site.glob("*.html")}
        outcomes = json.loads(measured.stdout)["outcomes"]
        return SimpleNamespace(folder=RunFolder.open(folder), outcomes=outcomes, site=site, pages=pages)

    return run


@pytest.fixture
def look(experiment):
    """Runs a plan's scale `tiny`, perhaps changed, whose pages must answer its question; what came of it."""

    def run(name, changes=(), proofs=True):
        done = experiment(name, "tiny", changes=changes, proofs=proofs)
        assert set(done.outcomes) <= {"ok", "unsupported", "unavailable"}
        assert done.outcomes["ok"] > 1
        lacking = unanswered(name, done.pages, whole=False)
        # Of what is not proven nothing is compared, and the title says that alone.
        assert [each for each in lacking if proofs or not each.startswith("the title")] == []
        return done

    return run


NETWORK = """
from stagebench.workloads.build import Builder


def network():
    b = Builder("two", (3, 64, 64), 2)
    x = b.avg_pool("pool", b.relu("relu", b.conv("conv", "input", 8, 5, stride=2)), 6, 6)
    b.head(b.dense("fc", b.flatten("flat", x), 2))
    return b
"""


@pytest.fixture
def two_classes(tmp_path):
    """What `--set` takes for a folder of images in two classes, and a network for it."""
    folder, network = tmp_path / "two-classes", tmp_path / "two.py"
    network.write_text(NETWORK)
    options = ("--classes", "2", "--images", "40", "--size", "64x64", "-o", str(folder))
    made = stagebench("data", "make", "imagenet-like", *options)
    assert made.returncode == 0, made.stderr
    return f"data={folder}", f"workload={network}"


def stagebench(*words: str, laboratory: State | None = None) -> "subprocess.CompletedProcess[str]":
    """The command line, in a process of its own; in the first host of a laboratory, where there is one."""
    tokens, place = [sys.executable, "-m", "stagebench.suite.cli", *words], None
    if laboratory:
        tokens, place = entering(laboratory, laboratory.layout.hosts[0], tokens), environment(laboratory)
    how = {"env": place, "capture_output": True, "text": True, "timeout": GIVE_UP}
    return subprocess.run(tokens, cwd=Path(__file__).resolve().parents[2], check=False, **how)


def pytest_sessionfinish(session, exitstatus):
    allowed = session.config.getoption("minutes", None)
    small = [minutes for (_, scale), minutes in session.config.stash[MINUTES].items() if scale == "small"]
    if allowed is not None and max(small, default=0) > allowed and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    taken, allowed = config.stash[MINUTES], config.getoption("minutes", None)
    if not taken:  # its workers have them
        return
    for (name, scale), minutes in taken.items():
        terminalreporter.write_line(f"{name} {scale}: {minutes:.1f} min")
    limit = f"; {allowed:g} min are allowed for each at its scale `small`" if allowed is not None else ""
    terminalreporter.write_line(f"together: {sum(taken.values()):.1f} min{limit}")
