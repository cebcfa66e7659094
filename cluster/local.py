"""`local`: one process per rank on this machine, started by us."""

from pathlib import Path

from stagebench.cluster.nodes import CheckedLauncher
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.errors import Unavailable
from stagebench.suite.processes.hosts import LOOPBACK, here


class Local(CheckedLauncher):
    """Starts ranks as plain processes; the environment has the address at which they meet."""

    name = "local"
    title = "processes on this machine"
    several_hosts = False
    order = 0

    def check(self, placement: Placement, interpreter: Path) -> None:
        """Raise Unavailable if the placement asks for other machines; nothing else can be missing."""
        if placement.nodes > 1:
            raise Unavailable(
                f"the launcher {self.name!r} starts ranks on this machine only, the placement asks for "
                f"{placement.nodes} nodes; ask for 1 node, or take another launcher (mpiexec)"
            )
        others = [host for host in placement.hosts if not here(host)]
        if others:
            raise Unavailable(
                f"the launcher {self.name!r} cannot start ranks on {', '.join(others)}; leave `hosts` out, or "
                "take mpiexec"
            )

    def start(self, request: Request) -> list[Process]:
        """Return one process per rank, with its numbers in our variables and in torchrun's."""
        world, variables = request.placement.ranks, {**request.environ, **rendezvous(LOOPBACK, request.port)}
        ranks = [Process(request.command, {**variables, **numbers(rank, world)}, rank) for rank in range(world)]
        return [*ranks, *sidecars(request, variables)]


def numbers(rank: int, world: int, local: int | None = None) -> dict[str, str]:
    """Return the variables that give a rank its numbers; on one machine the local number is the number."""
    local = rank if local is None else local
    return {
        "STAGEBENCH_RANK": str(rank),
        "STAGEBENCH_WORLD": str(world),
        "STAGEBENCH_LOCAL_RANK": str(local),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local),
    }


def rendezvous(host: str, port: int) -> dict[str, str]:
    """Return torch.distributed's variables for where ranks meet; none if no port was chosen."""
    return {"MASTER_ADDR": host, "MASTER_PORT": str(port)} if port else {}


def sidecars(request: Request, variables: dict[str, str]) -> list[Process]:
    return [Process(tokens, variables, sidecar=True) for tokens in request.sidecars]


@hookimpl
def stagebench_launchers() -> list[Launcher]:
    return [Local()]
