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

    from stagebench.suite.contracts.adapter import Adapter
    from stagebench.suite.contracts.launcher import Launcher
    from stagebench.suite.contracts.model_server import ModelServer
    from stagebench.workloads.catalogue import Workload

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
        adapter's attributes are checked against `stagebench.suite.contracts.adapter.Adapter`. An adapter written for an
        older contract ends the command with a list of the necessary changes.
        """

    @hookspec
    def stagebench_launchers(self) -> "list[Launcher]":  # type: ignore[empty-body]
        """Return the plugin's launchers: one instance of each, with a name that no other launcher has.

        Called whenever stagebench looks up launchers, several times in a process. The attributes of each launcher are
        checked against `stagebench.suite.contracts.launcher.Launcher`.
        """

    @hookspec
    def stagebench_model_servers(self) -> "list[ModelServer]":  # type: ignore[empty-body]
        """Return the plugin's model servers: one instance of each, with a name that no other model server has.

        Called whenever stagebench looks up model servers. Attributes are checked against
        `stagebench.suite.contracts.model_server.ModelServer`.
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

    @hookspec
    def stagebench_answer(self, standing: object) -> tuple[str, str] | None:
        """Return the title of a run and the rest of it, where its plan asks for more than who is the fastest.

        Called before the results of a run, a `stagebench.suite.analysis.standing.Standing`, are printed. The first
        answer of a plugin is taken.
        """


# --- the version of the contract -----------------------------------------------
# An adapter names the version that it was written for. An adapter of an older version is refused, with the list of the
# necessary changes.

CONTRACT = 4

MOVED = ("suite", "workloads")  # packages that a plugin of contract 1 to 3 imports; they are below `stagebench` now

CHANGES = {
    2: (
        "plugin.py: import Knob from stagebench.suite.contracts.knobs; what else came from suite.adapter, "
        "suite.backend, suite.case, suite.hooks and suite.launcher is in stagebench.suite.contracts",
        "plugin.py: the methods that took a Case take a Configuration (stagebench.suite.contracts.case), which has the "
        "same fields but those of measuring; Adam's beta 1 is `beta1`, no longer `momentum`",
        "plugin.py: `exact` is `synchronous`, `parts` is `model_parallel_size`, `companions` are `sidecars`",
        "plugin.py: in place of `trainer`, `package` names the worker half, and each Strategy its own trainer's class",
        "plugin.py: a knob that belongs to some strategies, or has bounds, says so itself: "
        "Knob(..., strategies=(...), least=..., most=...)",
        "plugin.py: a Strategy that leaves `launchers` out is started by every launcher that fits; mpi=True wants one "
        "whose ranks meet by MPI",
        "worker.py: import Adam, Batch, Joined, Optimiser, SGD, Setup, Unavailable and Unsupported from "
        "stagebench.suite.worker.contract",
        "worker.py: a reader of its own is made by `make_reader`, in place of `open_input`, and has a `close`",
    ),
    3: ("worker.py: a Batch has `inputs`, in place of `images`; they may be the numbers of tokens",),
    4: ("everywhere: import from stagebench.suite and stagebench.workloads, in place of suite and workloads",),
}


def changes_since(version: int) -> str:
    """Return the changes that a plugin written for an older version needs, as a numbered list."""
    found = [change for newer in range(version + 1, CONTRACT + 1) for change in CHANGES[newer]]
    return "\n".join(f"  {number}. {change}" for number, change in enumerate(found, 1))
