"""The table of mutants counts what mutmut left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "mutation" / "table.py"


@pytest.mark.parametrize(
    ("codes", "ended", "words"),
    [
        ([1, 1, 36, 0], 1, "3 of 4 mutants killed: 75.0 %"),
        ([1] * 9 + [33], 0, "9 of 10 mutants killed: 90.0 %"),
        ([1, None], 1, "1 were not run"),
    ],
)
def test_the_share_of_killed_mutants_decides(codes, ended, words, tmp_path):
    (tmp_path / "suite").mkdir()
    meta = {"exit_code_by_key": {f"f{number}": code for number, code in enumerate(codes)}}
    (tmp_path / "suite" / "files.py.meta").write_text(json.dumps(meta))
    done = subprocess.run([sys.executable, PROGRAM, "--mutants", tmp_path], capture_output=True, text=True)
    assert done.returncode == ended, done.stderr
    assert words in done.stdout
    assert f"| suite/files.py | {len(codes)} |" in done.stdout


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
