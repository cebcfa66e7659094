"""`ssh`: one process per rank, started on its host through a login; for frameworks whose ranks meet without an engine.

The folder of the run and the environments must lie at the same paths on every host, as
for mpiexec. Ranks on this machine need no login.
"""

import os
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

from stagebench.cluster import logins
from stagebench.cluster.local import numbers, rendezvous
from stagebench.cluster.nodes import CheckedLauncher, check_hosts, meeting_address
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.hosts import here
from stagebench.suite.processes.query import UNSET

UNSHARED = 66  # exit code
# $1: the folder, $2: the proof that it is shared; the rest: variables and the command. On a network file system new
# files may appear after some seconds.
ENTER = f"""n=0
until cd "$1" 2>/dev/null && grep -qs "$2" {logins.GUARD}; do
  n=$((n + 1))
  if test $n -gt 5; then
    echo "$(uname -n) does not see $1 of this run: name a folder that all hosts share, at the same path, with -o" >&2
    exit {UNSHARED}
  fi
  sleep 1
done
shift 2
{UNSET}
exec env "$@\""""


class Ssh(CheckedLauncher):
    """A login for every rank on another host, which ends with the rank and the rank with it."""

    name = "ssh"
    title = "logins on other hosts"
    sidecars_on_first_host = True
    order = 10

    def check(self, placement: Placement, interpreter: Path) -> None:
        """Raise Unavailable if a node has no host, or a host no login or no such interpreter."""
        check_hosts(placement)
        far = [host for host in dict.fromkeys(placement.hosts) if not here(host)]
        if far:
            logins.check_program()
        meeting_address(placement)
        for host in far:
            problem = logins.missing(logins.login(host), shlex.quote(str(interpreter)))
            if problem:
                raise Unavailable(problem)

    def start(self, request: Request) -> list[Process]:
        """Return one process per rank, node by node, then the sidecars, on the first host."""
        placement, proof = request.placement, uuid.uuid4().hex
        # The interfaces that a person has chosen, for all hosts.
        chosen = {name: value for name, value in os.environ.items() if name.endswith("_SOCKET_IFNAME")}
        variables = {**request.environ, **rendezvous(meeting_address(placement), request.port), **chosen}
        if not all(map(here, placement.hosts)):
            logins.write_guard(request, proof)
        ranks = []
        for rank, (host, local) in enumerate(places(placement)):
            who = {**variables, **numbers(rank, placement.ranks, local)}
            ranks.append(Process(*on(host, request.command, who, request, proof), rank))
        first = next(host for host, _ in places(placement))
        servers = ((tokens, on(first, tokens, variables, request, proof)) for tokens in request.sidecars)
        return [*ranks, *(Process(*there, sidecar=True, known_by=tokens) for tokens, there in servers)]


def places(placement: Placement) -> Iterator[tuple[str, int]]:
    """Yield (host, local rank) of every rank."""
    for host in placement.hosts or ("localhost",):
        for local in range(placement.ranks_per_node):
            yield host, local


def on(
    host: str, command: tuple[str, ...], variables: dict[str, str], request: Request, proof: str
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return (tokens, variables) of the process that runs a command on a host."""
    if here(host):
        return command, variables
    assigned = [f"{name}={value}" for name, value in sorted(variables.items())]
    entering = ("sh", "-c", ENTER, "stagebench", str(request.folder), proof)
    there = shlex.join([*entering, *assigned, *logins.far_end(request), *command])
    return (*logins.near_end(), *logins.login(host), there), {}


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Ssh()]
