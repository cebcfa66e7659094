"""`mpiexec`: ranks started by an MPI's own launcher (Open MPI 5 and 4, MPICH)."""

import os
from pathlib import Path

from cluster.agent import AGENT
from cluster.dialects import Dialect, filled
from cluster.engine import find
from cluster.local import companions, rendezvous
from cluster.nodes import unnamed
from suite.case import Placement
from suite.errors import RequestError, Unavailable
from suite.hooks import hookimpl
from suite.hosts import LOOPBACK
from suite.launcher import Launcher, Process, Request


class Mpiexec(Launcher):
    """One mpiexec for the whole group; its options come from the table of dialects."""

    name = "mpiexec"
    title = "an MPI's mpiexec"

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """An mpiexec that fits the interpreter, and a host for every node."""
        problem = unnamed(placement)
        if problem:
            return problem
        try:
            find(interpreter)
        except Unavailable as error:
            return str(error)
        return None

    def processes(self, request: Request) -> list[Process]:
        """The one process; RequestError or Unavailable for what `missing` tells."""
        problem = self.missing(request.placement, request.interpreter)
        if problem is not None:
            raise RequestError(problem)
        engine = find(request.interpreter)
        first = request.placement.hosts[0] if request.placement.hosts else LOOPBACK
        variables = {**request.environ, **rendezvous(first, request.port)}
        tokens = [str(engine.path), *arguments(engine.dialect, request.placement, variables), *request.command]
        return [Process(tuple(tokens), {**variables, **engine.dialect.environ}), *companions(request, variables)]


def arguments(dialect: Dialect, placement: Placement, variables: dict[str, str]) -> list[str]:
    """All between mpiexec and the command."""
    tokens = filled(dialect.group, ranks=placement.ranks, per_node=placement.ranks_per_node)
    if placement.hosts:
        hosts = ",".join(f"{host}:{placement.ranks_per_node}" for host in placement.hosts)
        tokens += filled(dialect.on_hosts, hosts=hosts)
    agent = os.environ.get(AGENT)
    if agent:
        tokens += filled(dialect.agent, agent=agent)
    for name, value in sorted(variables.items()):
        tokens += filled(dialect.variable, name=name, value=value)
    return tokens


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    """The launcher of this file."""
    return [Mpiexec()]
