"""Cancelling a job of a Slurm that does not answer."""

import getpass
import sys
import threading
import time

import psutil
import pytest

from stagebench.cluster.slurm import follow, script
from stagebench.suite.contracts.launcher import Process
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.attempt import run as attempt


def programs(folder, monkeypatch, **texts):
    """Slurm's programs, as far as they are needed."""
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_cancelling_ends_when_nobody_answers_before_the_follower_is_killed(tmp_path, monkeypatch):
    programs(tmp_path, monkeypatch, scancel="exec sleep 60", scontrol="exec sleep 60")
    assert follow.PATIENCE > follow.ANSWER + follow.SUBMISSION + follow.CANCELLING
    # The question that it may have to wait for, and cancelling: what a limit is followed by.
    assert follow.ANSWER + follow.CANCELLING < 30
    for name, seconds in (("ANSWER", 1.0), ("GENTLE", 0.2), ("HARD", 0.3)):
        monkeypatch.setattr(follow, name, seconds)
    begin = time.monotonic()
    follow.Job("7").cancel()
    assert time.monotonic() - begin < 30, "Slurm's programs wait for 60 s each"


@pytest.mark.parametrize("killed", ["the follower", "its guard"])
def test_a_job_whose_follower_is_killed_is_cancelled(tmp_path, monkeypatch, killed):
    """A job that runs for ever."""
    said = tmp_path / "said"
    answers = {"sbatch": "echo 42", "scontrol": "echo JobId=42 JobState=RUNNING ExitCode=0:0", "scancel": ""}
    texts = {name: f"echo {name} $* >>{said}\n{answer}" for name, answer in answers.items()}
    programs(tmp_path, monkeypatch, **texts)
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
        every = [each for each in psutil.process_iter(["cmdline"]) if name in (each.info["cmdline"] or [])]
        guards = [each for each in every if any(word.endswith("guard.py") for word in each.info["cmdline"])]
        next(each for each in every if (each in guards) == (killed == "its guard")).kill()

    thread = threading.Thread(target=when_it_runs)
    thread.start()
    found = attempt([follower], 1, folder, Limits(300.0, 300.0), strike)
    thread.join()
    assert (found.outcome, found.reason) == ("crash", "sbatch was ended by SIGKILL")
    cancels = [line for line in said.read_text().splitlines() if line.startswith("scancel")]
    assert cancels == [f"scancel --name={name} --user={getpass.getuser()}"] * 2, (
        "before it submits, and once it was killed"
    )
