"""How each MPI's mpiexec wants to be spoken to: data, one row a dialect.

Seen to work with Open MPI 5.0.11 and 4.1.8 and MPICH 4.3.2.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dialect:
    """One mpiexec's options, with {ranks}, {per_node}, {hosts}, {agent}, {name} and {value} to be filled in."""

    name: str
    title: str
    version: str  # regular expression: what `mpiexec --version` says
    library: str  # regular expression: what MPI_Get_library_version says of a library it can start
    group: tuple[str, ...]  # the number of ranks, their spreading over nodes, no binding
    on_hosts: tuple[str, ...]  # where; {hosts} is "a:2,b:2"
    variable: tuple[str, ...]  # hands one variable to every rank
    agent: tuple[str, ...]  # the program that logs in to other hosts; daemons stay its children, nobody else logs in
    wire: dict[str, str] = field(default_factory=dict)  # variables for ranks on several hosts
    environ: dict[str, str] = field(default_factory=dict)  # for mpiexec itself


# Binding is off everywhere: else each of Open MPI's daemons pins its first rank to core 0.
# The worker binds itself, the same way under every launcher. More ranks than cores are allowed.
# Open MPI refuses root unless told twice; containers have no other user.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Over one connection the words that call for the next piece wait behind the bytes that go the same way: an
# all-reduce of 16 MB reaches half the rate of a 1 Gbit/s wire. Over two it reaches it.
OPEN_MPI_WIRE = {"OMPI_MCA_btl_tcp_links": "2"}
DIALECTS = (
    Dialect(
        name="openmpi5",
        title="Open MPI 5",
        version=r"\(Open MPI\) 5\.",
        library=r"Open MPI v5\.",
        # Oversubscribing as a modifier of plain --map-by would put all ranks on the first host.
        group=("-n", "{ranks}", "--map-by", "ppr:{per_node}:node:OVERSUBSCRIBE", "--bind-to", "none"),
        on_hosts=("--host", "{hosts}"),
        variable=("-x", "{name}"),
        agent=(
            *("--prtemca", "plm_ssh_agent", "{agent}"),
            *("--prtemca", "plm_ssh_no_tree_spawn", "1"),
            *("--prtemca", "prte_leave_session_attached", "1"),
        ),
        wire=OPEN_MPI_WIRE,
        environ=AS_ROOT,
    ),
    Dialect(
        name="openmpi4",
        title="Open MPI 4",
        version=r"\((Open MPI|OpenRTE)\) 4\.",
        library=r"Open MPI v[45]\.",  # PMIx lets the newer library join the older engine, not the other way round
        group=("-n", "{ranks}", "--map-by", "ppr:{per_node}:node", "--oversubscribe", "--bind-to", "none"),
        on_hosts=("--host", "{hosts}"),
        variable=("-x", "{name}"),
        agent=(
            *("--mca", "plm_rsh_agent", "{agent}"),
            *("--mca", "plm_rsh_no_tree_spawn", "1"),
            *("--mca", "orte_leave_session_attached", "1"),
        ),
        wire=OPEN_MPI_WIRE,
        environ=AS_ROOT,
    ),
    Dialect(
        name="mpich",
        title="MPICH",
        version=r"HYDRA build details",
        library=r"MPICH Version",
        group=("-n", "{ranks}", "-ppn", "{per_node}", "-bind-to", "none"),
        on_hosts=("-hosts", "{hosts}"),
        variable=("-genv", "{name}", "{value}"),
        agent=("-launcher", "ssh", "-launcher-exec", "{agent}"),
    ),
)


def recognised(version: str) -> Dialect | None:
    """The dialect whose mpiexec says this, or None."""
    return next((dialect for dialect in DIALECTS if re.search(dialect.version, version)), None)


def filled(template: Iterable[str], **values: object) -> list[str]:
    """A row's tokens with their places filled in."""
    return [token.format(**values) for token in template]
