"""A launcher whose processes never meet: what an mpiexec of another MPI library makes of the ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite.case import Placement
from suite.hooks import hookimpl
from suite.launcher import Launcher, Process, Request
from suite.plugins import manager


class Lonely(Launcher):
    """Starts every process as rank 0 of 1."""

    name = "lonely"
    title = "processes that do not know of each other"

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """Nothing."""
        return None

    def processes(self, request: Request) -> list[Process]:
        """As many as ranks were asked for; the first one's word is heard."""
        variables = {
            **request.environ,
            "STAGEBENCH_RANK": "0",
            "STAGEBENCH_WORLD": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(request.port),
        }
        return [Process(request.command, variables, 0)]


class LonelyPlugin:
    """Brings the launcher."""

    @hookimpl
    def stagebench_launchers(self) -> list[Launcher]:
        """Lonely alone."""
        return [Lonely()]


@contextmanager
def registered() -> Iterator[None]:
    """Known to this process for as long as the block lasts."""
    plugin = LonelyPlugin()
    manager().register(plugin)
    try:
        yield
    finally:
        manager().unregister(plugin)
