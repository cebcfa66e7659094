"""What keeps a placement from running under this Slurm, in its own words, with the remedy."""

import shutil
import subprocess
from pathlib import Path

from cluster.queueing import queue_limit
from cluster.slurm import pmi
from cluster.slurm.script import SETTING, cores, resources
from suite.contracts.case import Placement
from suite.errors import Unavailable
from suite.processes.query import ask

WAIT, USUAL = "STAGEBENCH_SLURM_WAIT", 3600.0  # seconds that a job may wait in the queue
PROGRAMS = ("sbatch", "srun", "scontrol", "scancel", "sinfo")
SECONDS = 20.0


def check(placement: Placement, interpreter: Path) -> None:
    """Unavailable says what is missing."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        raise Unavailable(
            f"there is no {', '.join(absent)} on PATH: this is no host of a Slurm cluster; run stagebench on its login "
            "node, or install Slurm (Debian: apt-get install slurm-wlm munge)"
        )
    patience()
    options = resources(placement)
    code, answer = asked("scontrol", "ping")
    if code != 0:
        short = next((line for line in answer.split(" | ") if "DOWN" in line or "fatal" in line), answer)
        raise Unavailable(
            f"Slurm's controller does not answer: {short}; `scontrol ping` tells when it does, SLURM_CONF names "
            "another cluster's settings"
        )
    pmi.check(pmi.plugin(interpreter), interpreter)
    code, answer = asked("sbatch", "--test-only", *options, "--wrap", "true")
    if code != 0:
        raise Unavailable(
            f"Slurm cannot place nodes = {placement.nodes}, ranks = {placement.ranks_per_node} of {cores(placement)} "
            f"cores each: {answer}; it has {partitions()}. Ask for less, or name another partition with {SETTING} "
            '("--partition=NAME")'
        )


def patience() -> float:
    """Seconds that a job may wait in the queue; Unavailable when STAGEBENCH_SLURM_WAIT is no such number."""
    return queue_limit(WAIT, USUAL)


def partitions() -> str:
    """The partitions and what their nodes have, in words."""
    _, answer = asked("sinfo", "--noheader", "--format=%P %D %c %T")
    rows = [line.split() for line in answer.split(" | ")]
    found = [f"{row[0]} ({row[1]} nodes of {row[2]} cores, {row[3]})" for row in rows if len(row) == 4]
    return "the partitions " + ", ".join(found) if found else "no partition"


def asked(*tokens: str) -> tuple[int, str]:
    """(exit code, what a program printed, on one line); a program that hangs has failed."""
    try:
        done = ask(tokens, SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return done.returncode, " | ".join(line for line in lines if line)
