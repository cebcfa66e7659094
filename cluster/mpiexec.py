"""`mpiexec`: ranks started by an MPI's own launcher (Open MPI 5 and 4, MPICH)."""

import os
import tempfile
import uuid
from pathlib import Path

from stagebench.cluster import logins
from stagebench.cluster.dialects import Dialect, filled, find, knobs
from stagebench.cluster.local import rendezvous, sidecars
from stagebench.cluster.nodes import CheckedLauncher, check_hosts, meeting_address
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.hosts import here


class Mpiexec(CheckedLauncher):
    """Starts one mpiexec for the whole group, with the options of its dialect (`stagebench.cluster.dialects`)."""

    name = "mpiexec"
    title = "an MPI's mpiexec"
    mpi = True
    nodes_in_order = False  # Open MPI 4 begins with its own host
    order = 20

    def check(self, placement: Placement, interpreter: Path) -> None:
        """Raise Unavailable if no mpiexec fits the interpreter, or if mpiexec cannot take or reach the hosts."""
        check_hosts(placement)
        for host in placement.hosts:
            if ":" in host:
                raise Unavailable(
                    f"mpiexec cannot tell the address {host} from its number of ranks; write the host's name"
                )
        if not all(map(here, placement.hosts)):
            logins.check_program()
        find(interpreter)

    def start(self, request: Request) -> list[Process]:
        engine = find(request.interpreter)
        ours = knobs(engine.dialect, request.placement)
        variables = {**ours, **request.environ, **rendezvous(meeting_place(request.placement), request.port)}
        variables.update(engine.dialect.numbers.environ)
        tokens = [str(engine.path), *arguments(engine.dialect, request.placement, variables)]
        if not all(map(here, request.placement.hosts)):
            tokens += filled(engine.dialect.agent, agent=logins.write_daemon_login(request))
        environ, scratch, settings = {**variables, **engine.dialect.environ}, None, engine.dialect.scratch
        if settings and not any(name in os.environ for name in settings):  # a folder that no other mpiexec has
            scratch = Path(tempfile.gettempdir(), f"stagebench-mpiexec-{uuid.uuid4().hex[:12]}")
            environ[settings[0]] = str(scratch)
        return [
            Process((*tokens, *request.command), environ, failures=engine.dialect.failures, scratch=scratch),
            *sidecars(request, variables),
        ]


def meeting_place(placement: Placement) -> str:
    """Return the first host's address, or its name if only the engine knows the hosts.

    A name is what each host takes it for: Debian's /etc/hosts calls a host's own 127.0.1.1, which MPI's ranks
    never ask for, and those of torch.distributed and gloo take.
    """
    try:
        return meeting_address(placement)
    except Unavailable:
        return placement.hosts[0]


def arguments(dialect: Dialect, placement: Placement, variables: dict[str, str]) -> list[str]:
    """Return the options for the number of ranks, their hosts and their variables."""
    tokens = filled(dialect.group, ranks=placement.ranks, per_node=placement.ranks_per_node)
    if placement.hosts:
        hosts = ",".join(f"{host}:{placement.ranks_per_node}" for host in placement.hosts)
        tokens += filled(dialect.on_hosts, hosts=hosts)
    for name, value in sorted(variables.items()):
        tokens += filled(dialect.variable, name=name, value=value)
    return tokens


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Mpiexec()]
