"""`stagebench check-hosts` over two hosts of a laboratory, one of which computes wrongly."""

import json
import sys

import pytest

FLIP = """
import numpy
right = numpy.exp

def wrong(*args, **named):
    found = right(*args, **named)
    if isinstance(found, numpy.ndarray) and found.dtype == "float64":
        found.reshape(-1)[:1].view("int64")[:] ^= 1 << 40
    return found

numpy.exp = wrong
"""


@pytest.fixture
def check(laboratory, stagebench, real):
    """Runs the command in the first host, with this interpreter for the training."""
    real("mpich")

    def run(python=sys.executable):
        words = ("--hosts", ",".join(laboratory.layout.hosts), "--backend", "mpi4py-mpich", "-o", "checked", "--json")
        done = stagebench("check-hosts", *words, "--python", f"reference={python}")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def test_hosts_compute_the_same_and_reach_each_other(laboratory, check):
    _, found = check()  # one of two hosts may be slow: they share this machine
    assert [row["name"] for row in found["hosts"]] == list(laboratory.layout.hosts)
    first, second = found["hosts"]
    assert first["fingerprint"] == second["fingerprint"] != "", json.dumps(found["hosts"])
    assert all(min(row["figures"].values()) > 0 for row in found["hosts"])
    assert not [problem for row in found["hosts"] for problem in row["problems"] if "slow" not in problem]
    (link,) = found["links"]
    assert link["name"] == " ".join(laboratory.layout.hosts)
    assert 0 < link["figures"]["MB/s"] < 125 * 1.1  # of 1 Gbit/s
    assert found["links_left_out"] == 0


def test_a_host_that_computes_wrongly_is_named(laboratory, check, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FLIP)
    wrapper, wrong = tmp_path / "python", laboratory.layout.hosts[1]
    flips = f'[ "$(uname -n)" = {wrong} ] && export PYTHONPATH="{tmp_path}:$PYTHONPATH"'
    wrapper.write_text(f'#!/bin/sh\n{flips}\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    code, found = check(wrapper)
    assert code == 1
    first, second = found["hosts"]
    assert first["fingerprint"] != second["fingerprint"]
    assert any("COMPUTES WRONGLY" in problem and first["name"] in problem for problem in second["problems"])
