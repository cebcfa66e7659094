"""Cancelling a job of a Slurm that does not answer."""

import time

import pytest

from cluster.slurm import follow, job


@pytest.fixture
def hung(tmp_path, monkeypatch):
    """Slurm's programs, which wait for their controller for ever."""
    for name in ("scancel", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_cancelling_ends_when_nobody_answers(hung, monkeypatch):
    for name, seconds in (("ANSWER", 1.0), ("GENTLE", 0.2), ("HARD", 0.3)):
        monkeypatch.setattr(job, name, seconds)
    begin = time.monotonic()
    job.Job("7").cancel()
    assert time.monotonic() - begin < 30, "Slurm's programs wait for 60 s each"


def test_the_follower_is_not_killed_while_it_submits_and_cancels():
    assert follow.PATIENCE > job.SUBMISSION + job.CANCELLING
    # The question that it may have to wait for, and cancelling: what a limit is followed by.
    assert job.ANSWER + job.CANCELLING < 30
