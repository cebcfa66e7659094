"""Which of Slurm's PMI plug-ins an interpreter's MPI wants.

With the wrong one every rank runs alone, as rank 0 of 1; the worker finds that out and calls it a crash.
"""

import os
import re
from pathlib import Path

from cluster.dialects import DIALECTS, knobs
from cluster.engine import LIBRARY, output
from suite.contracts.case import Placement
from suite.errors import Unavailable

SETTING = "SLURM_MPI_TYPE"  # Slurm's own name for it
NONE = "none"


def plugin(interpreter: Path, library: str = "") -> str:
    """What goes behind `srun --mpi=`; Unavailable when it is unknown.

    The person's setting has the last word; then the `library` that the adapter names; else mpi4py tells its own. Who
    has no mpi4py meets without Slurm's help.
    """
    named = (dialect.pmi for dialect in DIALECTS if library and dialect.title.startswith(library))
    return os.environ.get(SETTING) or next(named, None) or of_library(interpreter)


def of_library(interpreter: Path) -> str:
    printed = output(str(interpreter), "-c", LIBRARY)
    known = next((dialect.pmi for dialect in DIALECTS if re.search(dialect.library, printed)), None)
    if known is not None:
        return known
    if "Traceback" in printed or not printed.strip():
        return NONE
    raise Unavailable(
        f"no PMI plug-in is known for the MPI of {interpreter}, {printed.strip().splitlines()[0]!r}; name one of those "
        f"that `srun --mpi=list` lists with {SETTING}"
    )


def wire(interpreter: Path, pmi: str, placement: Placement) -> dict[str, str]:
    """What ranks on several nodes want of their MPI, unless the person wants otherwise.

    Where no mpi4py tells the library, it is the oldest of those that this plug-in is for: newer ones know its settings.
    """
    printed = output(str(interpreter), "-c", LIBRARY)
    by_library = [dialect for dialect in DIALECTS if re.search(dialect.library, printed)][:1]
    by_plugin = [dialect for dialect in DIALECTS if dialect.pmi == pmi][-1:]
    return next((knobs(dialect, placement) for dialect in by_library + by_plugin), {})


def check(wanted: str, interpreter: Path) -> None:
    """Unavailable when this Slurm lacks it, or cannot load it, of which `srun --mpi=list` knows nothing."""
    printed = output("srun", f"--mpi={wanted}", "--test-only", "true")
    if "Invalid MPI type" in printed:
        raise Unavailable(
            f"the MPI of {interpreter} wants `srun --mpi={wanted}`, which this Slurm cannot load: "
            f"{printed.strip().splitlines()[0]}; install that plug-in with its library (Debian, pmix: apt-get install "
            f"libpmix-dev), name one that fits with {SETTING}, or take the launcher mpiexec"
        )
