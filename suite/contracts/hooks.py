"""The hooks a plugin may implement. Built-in adapters, launchers and reports use the same ones.

A plugin is a module or object registered under the entry-point group `stagebench`. Its functions marked with `hookimpl`
are called once in a process, after every plugin was loaded and before the command runs; one whose name is not in this
file is an error at start. What a hook raises ends the command with the plugin's name.

    [project.entry-points.stagebench]
    lumen = "stagebench_lumen.plugin"
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
    """Documentation and signatures; nothing is implemented here."""

    @hookspec
    def stagebench_plugins(self) -> "list[ModuleType]":  # type: ignore[empty-body]
        """Return further plugins, for a package that holds many, so that it needs one entry point.

        Called first, and of the plugins that entry points named, not of those that this hook brings.
        """

    @hookspec
    def stagebench_adapters(self) -> "list[Adapter]":  # type: ignore[empty-body]
        """Return the adapters that the plugin brings: one instance of each, with a name that no other has.

        Called when a command first asks for adapters; the framework must not be imported then.
        """

    @hookspec
    def stagebench_launchers(self) -> "list[Launcher]":  # type: ignore[empty-body]
        """Return the launchers that the plugin brings; called and named as adapters are."""

    @hookspec
    def stagebench_workloads(self) -> "list[Workload]":  # type: ignore[empty-body]
        """Return the workloads that the plugin brings; graphs are built when they are asked for, not here."""

    @hookspec
    def stagebench_commands(self, app: "typer.Typer") -> None:
        """Add commands to the command line, at every start: imports that take time belong inside the commands."""
