"""The hooks a plugin may implement. Built-in adapters, launchers and reports use the same ones.

A plugin is a module or object registered under the entry-point group `stagebench`, with at least one function marked
with `hookimpl`. A marked function whose name is not in this file is an error at start. A hook has to be quick and must
not import a framework: even `stagebench --help` loads every plugin. An exception in a hook ends the command with an
error that names the plugin.

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
    """The signatures of the hooks and their documentation; nothing is implemented here."""

    @hookspec
    def stagebench_plugins(self) -> "list[ModuleType]":  # type: ignore[empty-body]
        """Return further plugins, each a module or object with hooks, so that a package of many needs one entry point.

        Called once in a process, before every other hook, for the plugins that entry points name; not for those that
        this hook returns.
        """

    @hookspec
    def stagebench_adapters(self) -> "list[Adapter]":  # type: ignore[empty-body]
        """Return the plugin's adapters: one instance of each, with a name that no other adapter has.

        Called whenever stagebench looks up adapters, several times in a process, after all plugins are loaded. Each
        adapter's attributes are checked against `suite.contracts.adapter.Adapter`. An adapter written for an older
        contract ends the command with a list of the necessary changes.
        """

    @hookspec
    def stagebench_launchers(self) -> "list[Launcher]":  # type: ignore[empty-body]
        """Return the plugin's launchers: one instance of each, with a name that no other launcher has.

        Called whenever stagebench looks up launchers, several times in a process. The attributes of each launcher are
        checked against `suite.contracts.launcher.Launcher`.
        """

    @hookspec
    def stagebench_workloads(self) -> "list[Workload]":  # type: ignore[empty-body]
        """Return the plugin's workloads, each with a name that no other workload has.

        Called whenever stagebench looks up workloads, several times in a process. A workload's `graph` is a function
        that is called later, when the graph is needed: do not build graphs here.
        """

    @hookspec
    def stagebench_commands(self, app: "typer.Typer") -> None:
        """Add commands to `app`, stagebench's command line; return nothing.

        Called once at every start, after the built-in commands were added, so imports that take time belong inside the
        commands. A command whose name exists already is an error.
        """
