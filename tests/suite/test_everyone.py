"""The runner of the adapters' own tests: an adapter that is not here is named, and fails where it is needed."""

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def everyone(*tokens):
    words = [sys.executable, ROOT / "tests" / "adapters" / "everyone.py", *tokens]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def listed(name):
    config = configparser.RawConfigParser()
    config.read(ROOT / "tox.ini")
    return config["base"][name].split(",")


def test_what_is_not_here_is_named_and_skipped(tmp_path):
    done = everyone(tmp_path, "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in listed("names"):
        assert f"{name}: skipped: no {tmp_path}/{name}/bin/python" in done.stdout


def test_what_is_needed_and_not_here_fails(tmp_path):
    needed = listed("needed")
    done = everyone("--need", ",".join(needed), tmp_path, "-q")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"failed: {', '.join(sorted(needed))}\n" in done.stdout
    for name in needed:
        assert f"{name}: needed and not here: no {tmp_path}/{name}/bin/python: tox run -e {name}" in done.stdout


@pytest.mark.parametrize("name", ["pytroch", "reference"])
def test_what_is_needed_has_tests(tmp_path, name):
    done = everyone("--need", f"jax,{name}", tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"--need names {name}; adapters with tests are caffempi, " in done.stderr
