"""The table of mutants counts what mutmut left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "validation" / "mutation" / "table.py"


def tabled(folder, codes):
    """The table of a file whose mutants ended with these codes."""
    meta = {"exit_code_by_key": {f"f{number}": code for number, code in enumerate(codes)}}
    (folder / "files.py.meta").write_text(json.dumps(meta))
    return subprocess.run([sys.executable, PROGRAM, "--mutants", folder], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("codes", "ended", "words"),
    [
        ([1, 1, 36, 0], 1, "3 of 4 mutants killed: 75.0 %"),
        ([1] * 9 + [33], 0, "9 of 10 mutants killed: 90.0 % (95 % interval 59.6 to 98.2 %)"),
        ([1] * 90 + [-24] * 5 + [0] * 5, 0, "95 of 100 mutants killed: 95.0 % (95 % interval 88.8 to 97.8 %)"),
        ([1, None], 1, "1 were not run"),
        ([1, 1, 2, 3, 4, 5, 35, -11, -9, -15], 1, "2 of 10 mutants killed: 20.0 %"),  # neither failed nor timed out
    ],
)
def test_the_share_of_killed_mutants_decides(codes, ended, words, tmp_path):
    done = tabled(tmp_path, codes)
    assert done.returncode == ended, done.stderr
    assert words in done.stdout
    assert f"| files.py | {len(codes) - codes.count(None)} |" in done.stdout


def test_each_outcome_has_a_column(tmp_path):
    codes = [1] * 7 + [36, 24, -24, 152, 255, 24] + [0] * 5 + [5, 33, 5, 33] + [2, 35, -11] + [None] * 2
    done = tabled(tmp_path, codes)
    assert "| file | mutants | killed | timed out | survived | untested | no verdict |" in done.stdout
    assert "| files.py | 25 | 7 | 6 | 5 | 4 | 3 |" in done.stdout
    assert "6 of them timed out; a loaded machine does that, too" in done.stdout


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("def test_it(): assert False", 1),
        ("def test_it(): pass", 0),
        ("import nowhere", 35),
        ("import pytest\n@pytest.fixture\ndef broken(): raise OSError\ndef test_it(broken): pass", 1),
    ],
    ids=["failed", "passed", "not collected", "fixture failed"],
)
def test_exit_code_1_tells_of_a_failed_test_alone(source, code, tmp_path):
    for name in ("test_one.py", "test_two.py"):  # with -x, the second that cannot be collected ends all with 1
        (tmp_path / name).write_text(source)
    assert verdict(tmp_path, "test_one.py", "test_two.py") == code
    if code == 0:
        assert verdict(tmp_path, "test_one.py::test_other") == 35, "a test that is gone is no failed one"


def verdict(folder, *tests):
    """Pytest's exit code as mutmut has it."""
    plugins = ["-p", "tests.validation.mutation.verdict", "-p", "no:cacheprovider"]
    tokens = [sys.executable, "-m", "pytest", "-x", "-q", *plugins]
    environ = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
    return subprocess.run([*tokens, *tests], cwd=folder, env=environ, capture_output=True).returncode


def test_a_sample_names_some_mutants_of_each_folder_the_same_ones_each_time(tmp_path):
    for folder in ("plan", "results"):
        (tmp_path / folder).mkdir()
        for file in ("a", "b"):
            codes = {f"{folder}.{file}.x__mutmut_{number}": None for number in range(5)}
            (tmp_path / folder / f"{file}.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    found = [
        subprocess.check_output([sys.executable, PROGRAM, "--mutants", tmp_path, "--sample", "8"], text=True).split()
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) == 16
    assert [name.partition(".")[0] for name in found[0]] == ["plan"] * 8 + ["results"] * 8
