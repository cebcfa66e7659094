"""docs/python.md runs as it is; importing stagebench loads nothing heavy, and every name is documented."""

import doctest
import importlib
import re
import subprocess
import sys

import pytest

import stagebench
from stagebench.suite.errors import RequestError
from tests.docs.made import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
PROGRAM, SESSION = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HEAVY = ("numpy", "pydantic", "scipy", "typer", "rich", "pandas")


@pytest.mark.slow
def test_its_program_measures_and_reads(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("can run") == 2
    assert re.findall(r"^(\d) Interval", done.stdout, re.MULTILINE) == ["4", "8"]
    assert len(stagebench.rows(tmp_path / "results" / "mine")) == 2


def test_its_session_prints_what_it_shows():
    parsed = doctest.DocTestParser().get_doctest(SESSION, {}, "python.md", None, 0)
    result = doctest.DocTestRunner(verbose=False).run(parsed)
    assert result.attempted > 2
    assert not result.failed


def test_importing_it_loads_nothing_heavy():
    """Its time follows: milliseconds. A name that is used loads what it needs."""
    program = "import sys, stagebench; stagebench.RequestError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & set(HEAVY)


def test_every_name_is_there_and_no_other():
    shown = set(re.findall(r"`(\w+)\(", PAGE))
    functions = {name for name in stagebench.__all__ if name.islower() and not name.startswith("__")}
    assert shown == functions
    assert all(getattr(stagebench, name) for name in stagebench.__all__)
    with pytest.raises(AttributeError):
        stagebench.absent  # noqa: B018
    assert importlib.import_module("stagebench").RequestError is RequestError


@pytest.mark.parametrize(
    ("ask", "value"),
    [
        (lambda: stagebench.plan(), "adapter"),
        (lambda: stagebench.plan("quick", batch=3), "batch"),
        (lambda: stagebench.plan("quick", set={"bach": 1}), "bach=1"),
        (lambda: stagebench.plan({"name": None}), "None"),
        (lambda: stagebench.cases(stagebench.plan({"name": "a", "title": "b", "cases": [{"batch": -1}]})), "-1"),
        (lambda: stagebench.compare("a", "b", threshold=3), "3"),
        (lambda: stagebench.predict(wheels=1), "wheels"),
    ],
)
def test_a_wrong_request_is_refused(ask, value):
    with pytest.raises(RequestError, match=value):
        ask()


def test_a_plan_is_the_same_from_a_file_and_from_its_content(tmp_path):
    content = {
        "name": "mine",
        "title": "one",
        "sampling": {"quick": True, "steps": 5},
        "scale": {"small": {"divide_batch": 2}},
        "cases": [{"adapter": "reference", "strategy": "single", "workload": "mnist_small", "batch": [8, 16]}],
    }
    given = stagebench.plan(content, scale="small", set={"sampling.steps": 7})
    (tmp_path / "plan.toml").write_text(given.text)
    read = stagebench.plan(tmp_path / "plan.toml", scale="small")
    assert stagebench.cases(read) == stagebench.cases(given)
    assert [each.case.batch for each in stagebench.cases(given)] == [4, 8]


def test_a_run_becomes_a_frame():
    folder = ROOT / "tests/fixtures/runs/format-5/training"
    pandas = pytest.importorskip("pandas")
    frame = stagebench.frame(folder)
    assert list(frame["id"]) == [row.id for row in stagebench.rows(folder)]
    assert str(frame["batch"].dtype) == "Int64"
    assert frame["samples_per_second"].notna().any()
    assert isinstance(frame, pandas.DataFrame)


def test_without_pandas_there_is_no_frame(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RequestError):
        stagebench.frame(".")
