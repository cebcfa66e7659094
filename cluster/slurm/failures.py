"""How srun names a rank that died; seen with Slurm 22.05."""

import re

from cluster.dialects import OPEN_MPI_LOSSES
from suite.contracts.launcher import FailurePatterns

SRUN = re.compile(
    r"srun: error: \S+: tasks? (?P<rank>\d+)\S*: (Exited with exit code (?P<code>\d+)|(?P<strsignal>[^\n(]+))"
)
# srun names tasks as their nodes report them, and Open MPI's ranks leave when they miss another one: whoever is quicker
# stands first. What srun itself ends gets SIGTERM.
PATTERNS = FailurePatterns(deaths=(SRUN,), any_order=True, losses=OPEN_MPI_LOSSES)
