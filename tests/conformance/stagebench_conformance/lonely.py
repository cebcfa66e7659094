"""A launcher whose rank meets no other: what an mpiexec of another MPI library makes of each rank."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite.contracts.case import Placement
from suite.contracts.hooks import hookimpl
from suite.contracts.launcher import Launcher, Process, Request
from suite.plugins import manager


class Lonely(Launcher):
    """Starts one process, as rank 0 of 1, however many ranks were asked for."""

    name = "lonely"
    title = "a process that knows of no other"

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        """Nothing."""
        return None

    def processes(self, request: Request) -> list[Process]:
        """One: more of them would all be rank 0, and write one file and listen at one port, whoever comes first."""
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
