"""Cancelling a job of a Slurm that does not answer."""

import getpass
import os
import signal
import sys
import threading
import time

import psutil
import pytest

from cluster.slurm import follow, script
from suite.contracts.launcher import Process
from suite.processes.attempt import Limits
from suite.processes.attempt import run as attempt


@pytest.fixture
def hung(tmp_path, monkeypatch):
    """Slurm's programs, which wait for their controller for ever."""
    for name in ("scancel", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_cancelling_ends_when_nobody_answers(hung, monkeypatch):
    for name, seconds in (("ANSWER", 1.0), ("GENTLE", 0.2), ("HARD", 0.3)):
        monkeypatch.setattr(follow, name, seconds)
    begin = time.monotonic()
    follow.Job("7").cancel()
    assert time.monotonic() - begin < 30, "Slurm's programs wait for 60 s each"


def test_the_follower_is_not_killed_while_it_submits_and_cancels():
    assert follow.PATIENCE > follow.ANSWER + follow.SUBMISSION + follow.CANCELLING
    # The question that it may have to wait for, and cancelling: what a limit is followed by.
    assert follow.ANSWER + follow.CANCELLING < 30


@pytest.mark.parametrize("killed", ["the follower", "its guard"])
def test_a_job_whose_follower_is_killed_is_cancelled(tmp_path, monkeypatch, killed):
    """Slurm's programs as far as they are needed: a job that runs for ever."""
    said = tmp_path / "said"
    answers = {"sbatch": "echo 42", "scontrol": "echo JobId=42 JobState=RUNNING ExitCode=0:0", "scancel": ""}
    for name, answer in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} $* >>{said}\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    folder = tmp_path / "attempt"
    folder.mkdir()
    (folder / script.NAME).write_text("#!/bin/sh\n")
    name, program = "stagebench-1", (sys.executable, "-I", "-S", follow.__file__)
    follower = Process((*program, str(folder / script.NAME), name, "60"), known_by=("sbatch",), undo=(*program, name))

    def strike(_, message):
        raise AssertionError(message)

    def when_it_runs():
        while "scontrol" not in (said.read_text() if said.exists() else ""):
            time.sleep(0.05)
        pids = {
            each.info["pid"]: each
            for each in psutil.process_iter(["pid", "cmdline"])
            if name in (each.info["cmdline"] or [])
        }
        guards = [pid for pid, each in pids.items() if any(word.endswith("guard.py") for word in each.info["cmdline"])]
        os.kill(next(iter(guards if killed == "its guard" else pids.keys() - set(guards))), signal.SIGKILL)

    thread = threading.Thread(target=when_it_runs)
    thread.start()
    found = attempt([follower], 1, folder, Limits(60.0, 60.0), strike)
    thread.join()
    assert (found.outcome, found.reason) == ("crash", "sbatch was ended by SIGKILL")
    cancels = [line for line in said.read_text().splitlines() if line.startswith("scancel")]
    assert cancels == [f"scancel --name={name} --user={getpass.getuser()}"] * 2, (
        "before it submits, and once it was killed"
    )
