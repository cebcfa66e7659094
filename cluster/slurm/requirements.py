"""The requirements of a placement under this Slurm: programs, nodes, and the PMI plug-in of the interpreter's MPI.

With the wrong plug-in every rank runs alone, as rank 0 of 1; the worker finds that out and calls it a crash.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from cluster.dialects import DIALECTS, LIBRARY, knobs, output
from cluster.nodes import queue_limit
from cluster.slurm.script import SETTING, cores, resources
from suite.contracts.case import Placement
from suite.errors import Unavailable
from suite.processes.query import ask

WAIT, USUAL = "STAGEBENCH_SLURM_WAIT", 3600.0  # seconds that a job may wait in the queue
PMI = "SLURM_MPI_TYPE"  # Slurm's own variable for the plug-in of PMI
PROGRAMS = ("sbatch", "srun", "scontrol", "scancel", "sinfo")
SECONDS = 20.0


def check(placement: Placement, interpreter: Path) -> None:
    """Unavailable names what is missing, in Slurm's words, with the remedy."""
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
    check_pmi(pmi_plugin(interpreter), interpreter)
    code, answer = asked("sbatch", "--test-only", *options, "--wrap", "true")
    if code != 0:
        raise Unavailable(
            f"Slurm cannot place nodes = {placement.nodes}, ranks = {placement.ranks_per_node} of {cores(placement)} "
            f"cores each: {answer}; it has {partitions()}. Ask for less, or name another partition with {SETTING} "
            '("--partition=NAME")'
        )


def patience() -> float:
    """Return the seconds that a job may wait in the queue; Unavailable if STAGEBENCH_SLURM_WAIT is no such number."""
    return queue_limit(WAIT, USUAL)


def partitions() -> str:
    """Name the partitions and what their nodes have."""
    _, answer = asked("sinfo", "--noheader", "--format=%P %D %c %T")
    rows = [line.split() for line in answer.split(" | ")]
    names = [f"{row[0]} ({row[1]} nodes of {row[2]} cores, {row[3]})" for row in rows if len(row) == 4]
    return "the partitions " + ", ".join(names) if names else "no partition"


def asked(*tokens: str) -> tuple[int, str]:
    """Return (exit code, a program's output on one line); a program that hangs has failed."""
    try:
        done = ask(tokens, SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return done.returncode, " | ".join(line for line in lines if line)


def pmi_plugin(interpreter: Path, library: str = "") -> str:
    """Return the value of `srun --mpi=`; Unavailable if it is unknown.

    A person's setting has the last word; then the `library` that the adapter names; else mpi4py reports its own.
    Without mpi4py, ranks meet without Slurm's help.
    """
    named = (dialect.pmi for dialect in DIALECTS if library and dialect.title.startswith(library))
    return os.environ.get(PMI) or next(named, None) or of_library(interpreter)


def of_library(interpreter: Path) -> str:
    printed = output(str(interpreter), "-c", LIBRARY)
    known = next((dialect.pmi for dialect in DIALECTS if re.search(dialect.library, printed)), None)
    if known is not None:
        return known
    if "Traceback" in printed or not printed.strip():
        return "none"
    raise Unavailable(
        f"no PMI plug-in is known for the MPI of {interpreter}, {printed.strip().splitlines()[0]!r}; name one of those "
        f"that `srun --mpi=list` lists with {PMI}"
    )


def wire(interpreter: Path, pmi: str, placement: Placement) -> dict[str, str]:
    """Return the MPI's settings for ranks on several nodes, unless a person has chosen others.

    Without mpi4py, the library is taken for the oldest that this plug-in serves: newer ones know its settings.
    """
    printed = output(str(interpreter), "-c", LIBRARY)
    by_library = [dialect for dialect in DIALECTS if re.search(dialect.library, printed)][:1]
    by_plugin = [dialect for dialect in DIALECTS if dialect.pmi == pmi][-1:]
    return next((knobs(dialect, placement) for dialect in by_library + by_plugin), {})


def check_pmi(wanted: str, interpreter: Path) -> None:
    """Unavailable if this Slurm lacks the plug-in or cannot load it, which `srun --mpi=list` does not show."""
    printed = output("srun", f"--mpi={wanted}", "--test-only", "true")
    if "Invalid MPI type" in printed:
        raise Unavailable(
            f"the MPI of {interpreter} wants `srun --mpi={wanted}`, which this Slurm cannot load: "
            f"{printed.strip().splitlines()[0]}; install that plug-in with its library (Debian, pmix: apt-get install "
            f"libpmix-dev), name one that fits with {PMI}, or take the launcher mpiexec"
        )
