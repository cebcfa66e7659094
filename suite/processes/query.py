"""Short programs that answer a question, and the variables that any program inherits from the controller.

A program is ended with all that it has started, whatever becomes of it or of the controller.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from stagebench.suite.worker.guard import CANNOT_START, guarded

CANNOT = "cannot start "  # opens the guard's message about a program that cannot be started
FORCED = 5.0  # seconds for its guard to end a program that is late
# By a library of threads' own pinning every rank begins on the first of the same cores.
PINNING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET")
# Ranks look for each other, and gRPC or urllib would ask a proxy for them.
PROXIES = tuple(
    name for kind in ("http", "https", "all", "grpc") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())
)
# Variables that give one process its rank: if the controller has them, another launcher started the controller, and a
# library of MPI that sees them would join that launcher's group. PYTHONPATH, PYTHONHOME and their like belong to the
# controller's interpreter and break another one's.
FOREIGN = (
    *("STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK"),
    *("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_APP_CTX_", "OMPI_FIRST_RANKS", "OMPI_MCA_ess", "OMPI_MCA_orte_"),
    *("MPI_LOCAL", "HYDI_", "PMIX_", "PMI_", "PRTE_LAUNCHED", "PYTHON"),
    *(*PINNING, *PROXIES),
)  # beginnings of names


FIRST_SPECIAL_STEP = 0xFFFFFFF0  # of a job's script and of salloc's shell, which hold no cores


# A line for the shell of another host, whose start-up files may set them, too.
UNSET = f"unset {' '.join((*PINNING, *PROXIES))}"


def inherited(foreign: Iterable[str] = FOREIGN) -> dict[str, str]:
    """Return this process's variables without the foreign ones.

    Within a step of Slurm (`srun bash`), Slurm's are foreign: an MPI would start ranks by a step, which waits for this
    one's cores, or take a rank for one of this step.
    """
    step = os.environ.get("SLURM_STEP_ID", "")
    if step.isdigit() and int(step) < FIRST_SPECIAL_STEP:
        foreign = (*foreign, "SLURM_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(tuple(foreign)) or name in ("SLURM_CONF", "PYTHONNOUSERSITE")
    }


def not_handed_on() -> list[str]:
    """Return a sentence on each kind of this process's variables that a person may miss in a rank."""
    kinds = (
        (PINNING, "all would begin on the same core, and binding = 'cores' gives each rank cores of its own"),
        (PROXIES, "they look for each other, and not through a proxy"),
    )
    set_here = ((", ".join(name for name in sorted(os.environ) if name.startswith(names)), why) for names, why in kinds)
    return [f"ranks do not get {names}: {why}" for names, why in set_here if names]


def ask(tokens: Sequence[str], seconds: float, foreign: Iterable[str] = FOREIGN) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; raise OSError if it cannot be started, TimeoutExpired if it is late."""
    with subprocess.Popen(
        guarded(tokens, 0.0, 0.0),
        env=inherited(foreign),
        cwd="/",  # `python -c` looks for modules in the working directory: no file of ours may be found there
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as program:
        try:
            out, err = program.communicate(timeout=seconds)
        except BaseException:  # late, or interrupted by a person: the guard ends the program with all it started
            program.terminate()
            try:
                program.wait(FORCED)
            except subprocess.TimeoutExpired:
                program.kill()
            raise
    if program.returncode == CANNOT_START and err.startswith(CANNOT):
        raise OSError(0, err.strip().rpartition(": ")[2], tokens[0])
    return subprocess.CompletedProcess(tokens, program.returncode, out, err)


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a program's messages, else of its output."""
    return (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()[-1]


def commit_of(folder: Path) -> tuple[str, str]:
    """Return the full hash of a folder's commit, with "-dirty" if tracked files have changed, and why it is not known.

    Both are "" without git or a repository. A history of runs is about these commits of a person's own repository.
    """
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        done = ask(command, 10.0)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    refusal = next((line for line in done.stderr.splitlines() if "dubious ownership" in line), "")
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", refusal)
