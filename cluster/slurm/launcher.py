"""`slurm`: every attempt is a job of its own, on nodes of its own."""

import re
import sys
from dataclasses import replace
from pathlib import Path

from cluster.dialects import OPEN_MPI_LOSSES
from cluster.slurm import follow, run, script
from cluster.slurm.requirements import check, patience, pmi_plugin, wire
from suite.contracts.case import Placement
from suite.contracts.hooks import hookimpl
from suite.contracts.launcher import FailurePatterns, Launcher, Process, Request
from suite.errors import RequestError, Unavailable

# How srun names a rank that died; seen with Slurm 22.05.
SRUN = re.compile(
    r"srun: error: \S+: tasks? (?P<rank>\d+)\S*: (Exited with exit code (?P<code>\d+)|(?P<strsignal>[^\n(]+))"
)
# srun names tasks as their nodes report them, and Open MPI's ranks leave when they miss another one: the quicker one
# comes first. A task that srun itself ends gets SIGTERM.
PATTERNS = FailurePatterns(deaths=(SRUN,), any_order=True, losses=OPEN_MPI_LOSSES)


class Slurm(Launcher):
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

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """Return that programs, a controller that answers, nodes, or the PMI of the interpreter's MPI are missing."""
        try:
            check(placement, interpreter)
        except Unavailable as error:
            return str(error)
        return None

    def processes(self, request: Request) -> list[Process]:
        """Return the one process; RequestError for what `missing` returns."""
        try:
            pmi, wait = pmi_plugin(request.interpreter, request.mpi), patience()
            request = replace(request, environ={**wire(request.interpreter, pmi, request.placement), **request.environ})
            text = script.text(request, pmi)
        except Unavailable as error:
            raise RequestError(str(error)) from error
        path = request.folder / script.NAME
        path.write_text(text)
        path.chmod(0o755)
        name, program = script.job_name(request.folder), (sys.executable, "-I", "-S", run.__file__)
        return [
            Process(
                (*program, str(path), name, str(wait)),
                known_by=("sbatch",),
                queues=True,
                patience=follow.PATIENCE,
                failures=PATTERNS,
                undo=(*program, name),
            )
        ]


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Slurm()]
