"""`slurm`: every attempt is a job of its own, on nodes of its own; and what a placement needs of this Slurm.

With the wrong PMI plug-in every rank runs alone, as rank 0 of 1; the worker finds that out and calls it a crash.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from stagebench.cluster.dialects import DIALECTS, LIBRARY, OPEN_MPI_LOSSES, knobs, output
from stagebench.cluster.nodes import CheckedLauncher, queue_limit
from stagebench.cluster.slurm import follow, script
from stagebench.cluster.slurm.script import SETTING, cores, resources, with_theirs
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import FailurePatterns, Launcher, Process, Request
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes.query import FOREIGN, ask

# Seconds that a job may wait in the queue; fewer in a job, because the nodes that it waits for may be that job's own.
WAIT, USUAL, WITHIN_JOB = "STAGEBENCH_SLURM_WAIT", 3600.0, 60.0
PMI = "SLURM_MPI_TYPE"  # Slurm's own variable for the plug-in of PMI
PROGRAMS = ("sbatch", "srun", "scontrol", "scancel", "sinfo")
SECONDS = 20.0

# How srun names a rank that died; seen with Slurm 22.05.
SRUN = re.compile(
    r"srun: error: \S+: tasks? (?P<rank>\d+)\S*: (Exited with exit code (?P<code>\d+)|(?P<strsignal>[^\n(]+))"
)
# srun names tasks as their nodes report them, and Open MPI's ranks leave when they miss another one: the quicker one
# comes first. A task that srun itself ends gets SIGTERM.
PATTERNS = FailurePatterns(deaths=(SRUN,), any_order=True, losses=OPEN_MPI_LOSSES)


class Slurm(CheckedLauncher):
    """Writes the batch script; the process to start is the one that submits it and follows the job.

    Ranks and sidecars run in the allocation. The attempt's folder must be on a file system that
    the nodes share: there the ranks write, as under every launcher.
    """

    name = "slurm"
    title = "Slurm's sbatch and srun"
    chooses_hosts = True
    mpi = True
    sidecars_on_first_host = True
    nodes_in_order = False  # Slurm sorts a list of nodes
    order = 30

    def check(self, placement: Placement, interpreter: Path) -> None:
        """Raise Unavailable if programs, a controller that answers, nodes, or the PMI of the MPI are missing."""
        absent = [name for name in PROGRAMS if shutil.which(name) is None]
        if absent:
            raise Unavailable(
                f"there is no {', '.join(absent)} on PATH: this is no host of a Slurm cluster; run stagebench on its "
                "login node, or install Slurm (Debian: apt-get install slurm-wlm munge)"
            )
        queue_limit(WAIT, USUAL)
        options = with_theirs(resources(placement))
        code, answer = asked("scontrol", "ping")
        if code != 0:
            short = next((line for line in answer.split(" | ") if "DOWN" in line or "fatal" in line), answer)
            raise Unavailable(
                f"Slurm's controller does not answer: {short}; `scontrol ping` tells when it does, SLURM_CONF names "
                "another cluster's settings"
            )
        pmi = pmi_plugin(interpreter)
        printed = asked("srun", f"--mpi={pmi}", "--test-only", "true")[1]
        if "Invalid MPI type" in printed:  # which `srun --mpi=list` does not show
            raise Unavailable(
                f"the MPI of {interpreter} wants `srun --mpi={pmi}`, which this Slurm cannot load: "
                f"{printed.partition(' | ')[0]}; install that plug-in with its library (Debian, pmix: apt-get install "
                f"libpmix-dev), name one that fits with {PMI}, or take the launcher mpiexec"
            )
        code, answer = asked("sbatch", "--test-only", *options, "--wrap", "true")
        if code != 0:
            rows = [line.split() for line in asked("sinfo", "--noheader", "--format=%P %D %c %T")[1].split(" | ")]
            names = [f"{row[0]} ({row[1]} nodes of {row[2]} cores, {row[3]})" for row in rows if len(row) == 4]
            partitions = f"the partitions {', '.join(names)}" if names else "no partition"
            raise Unavailable(
                f"Slurm cannot place nodes = {placement.nodes}, ranks = {placement.ranks_per_node} of "
                f"{cores(placement)} cores each: {answer}; it has {partitions}. Ask for less, or name another "
                f'partition with {SETTING} ("--partition=NAME")'
            )

    def processes(self, request: Request) -> list[Process]:
        """Return the one process; RequestError for what it lacks. Slurm is not asked again."""
        try:
            return self.start(request)
        except Unavailable as error:
            raise RequestError(str(error)) from error

    def start(self, request: Request) -> list[Process]:
        around = os.environ.get("SLURM_JOB_ID", "")
        wait, pmi = queue_limit(WAIT, WITHIN_JOB if around else USUAL), pmi_plugin(request.interpreter, request.mpi)
        request = replace(request, environ={**wire(request.interpreter, pmi, request.placement), **request.environ})
        text = script.text(request, pmi)
        path = request.folder / script.NAME
        path.write_text(text)
        path.chmod(0o755)
        name, program = script.job_name(request.folder), (sys.executable, "-I", "-S", follow.__file__)
        return [
            Process(
                (*program, str(path), name, str(wait)),
                {follow.AROUND: around},
                known_by=("sbatch",),
                queues=True,
                patience=follow.PATIENCE,
                failures=PATTERNS,
                undo=(*program, name),
            )
        ]


def asked(*tokens: str) -> tuple[int, str]:
    """Return (exit code, a program's output on one line); a program that hangs has failed.

    It does not see the variables of a job that stagebench may run in: its options are for other jobs.
    """
    try:
        done = ask(tokens, SECONDS, (*FOREIGN, "SLURM_"))
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return done.returncode, " | ".join(line for line in lines if line)


def pmi_plugin(interpreter: Path, library: str = "") -> str:
    """Return the value of `srun --mpi=`; Unavailable if it is unknown.

    A person's setting has the last word; then the `library` that the adapter names; else mpi4py reports its own.
    Without mpi4py, ranks meet without Slurm's help.
    """
    named = [dialect.pmi for dialect in DIALECTS if library and dialect.title.startswith(library)]
    setting = os.environ.get(PMI) or next(iter(named), None)
    if setting is not None:
        return setting
    printed = output(str(interpreter), "-c", LIBRARY)
    known = [dialect.pmi for dialect in DIALECTS if re.search(dialect.library, printed)]
    if known:
        return known[0]
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


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Slurm()]
