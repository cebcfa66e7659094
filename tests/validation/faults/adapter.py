"""The campaign's adapter: the launchers' tiny one, whose two meeting ranks also have a server beside them."""

import sys
from pathlib import Path

from stagebench.suite.contracts.adapter import Adapter
from stagebench.suite.contracts.case import Configuration
from stagebench.suite.contracts.hooks import hookimpl
from stagebench.suite.plugins import manager

sys.path.append(str(Path(__file__).parents[2] / "cluster"))

from tinyadapter.plugin import Tiny


class Served(Tiny):
    """With a program that does nothing until it is ended."""

    def sidecars(self, case: Configuration) -> list[tuple[str, ...]]:
        return [("tinyadapter/server.py",)] if case.strategy == "meets" else []


class Plugin:
    """Brings it."""

    @hookimpl
    def stagebench_adapters(self) -> list[Adapter]:
        return [Served()]


def register() -> None:
    """Known to this process, once."""
    if not manager().has_plugin("faults"):
        manager().register(Plugin(), "faults")
