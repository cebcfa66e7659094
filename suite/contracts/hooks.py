"""The hooks a plugin may implement. Built-in adapters, launchers and reports use the same ones.

A plugin is a module or object registered under the entry-point group `stagebench`.
A function marked with `suite.hookimpl` whose name is not in this file is an error at start.
"""

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from types import ModuleType

    import typer

    from suite.contracts.adapter import Adapter
    from suite.contracts.launcher import Launcher
    from workloads.catalogue import Workload

PROJECT = "stagebench"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """Called once each, when the plugins have been loaded and before the command runs."""

    @hookspec
    def stagebench_plugins(self) -> "list[ModuleType]":  # type: ignore[empty-body]
        """Further plugins, of a package that has many; asked before all else, and of installed ones only."""

    @hookspec
    def stagebench_adapters(self) -> "list[Adapter]":  # type: ignore[empty-body]
        """Adapters that the plugin brings."""

    @hookspec
    def stagebench_launchers(self) -> "list[Launcher]":  # type: ignore[empty-body]
        """Launchers that the plugin brings."""

    @hookspec
    def stagebench_workloads(self) -> "list[Workload]":  # type: ignore[empty-body]
        """Workloads that the plugin brings."""

    @hookspec
    def stagebench_commands(self, app: "typer.Typer") -> None:
        """Add commands to the command line."""
