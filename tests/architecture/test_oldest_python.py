"""Vermin on the worker half: syntax and library of Python 3.6. A run on 3.6 is the proof; this is the quick check."""

import subprocess
import sys

import pytest


def vermin(paths):
    pytest.importorskip("vermin", reason="vermin is a part of the lint environment")
    start = [sys.executable, "-c", "import sys, vermin; sys.exit(vermin.main())"]
    options = ["-t=3.6-", "--eval-annotations", "--no-tips", "--violations"]
    return subprocess.run([*start, *options, *map(str, paths)], capture_output=True, text=True, check=False)


def test_the_worker_half_is_python_3_6(root, worker_half):
    result = vermin(root / path for path in worker_half)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "slip",
    [
        "if (n := 3): pass",
        "from dataclasses import dataclass",
        "import time\ntime.perf_counter_ns()",
        "import subprocess\nsubprocess.run(['x'], capture_output=True)",
        "def f(x: list[int]): pass",
        "print(f'{1=}')",
    ],
)
def test_it_sees_a_slip(tmp_path, slip):
    (tmp_path / "slip.py").write_text(slip + "\n")
    result = vermin([tmp_path / "slip.py"])
    assert result.returncode == 1
    assert "Target versions not met:   3.6-" in result.stdout
