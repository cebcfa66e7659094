"""The plugin manager: finds plugins, checks what they bring, answers by name. Every refusal names the plugin."""

import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from suite.contracts.adapter import Adapter, Capabilities
from suite.contracts.hooks import PROJECT, Hooks
from suite.contracts.launcher import Launcher
from suite.contracts.versions import CONTRACT, changes_since
from suite.errors import RequestError
from suite.mistakes import blamed, check_declared, checked, held_graph, hold
from suite.suggest import known, shown
from workloads.catalogue import Workload
from workloads.graph import Graph

T = TypeVar("T", Adapter, Launcher, Workload)
OWN = [Path(__file__).parents[1] / name for name in ("suite", "adapters", "cluster", "reports", "workloads")]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # also of folders and environments: it stays in its place
NAMING = "take letters, digits, '.', '_' and '-', a letter or a digit first, 64 at most"


@cache
def manager() -> pluggy.PluginManager:
    """The manager with every installed plugin; RequestError for one that does not load or misspells a hook.

    The built-in ones come through the same entry-point group as a third party's
    (see pyproject.toml).
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    for point in entry_points(group=PROJECT):
        with blamed(f"the plugin {point.name!r} ({point.value}, of {point.dist.name if point.dist else 'nobody'})"):
            register(plugins, point.load(), point.name)
    for plugin, whose in brought(plugins, "stagebench_plugins", "plugins"):
        with blamed(whose):
            register(plugins, plugin)
    with blamed("a plugin"):
        plugins.check_pending()
    return plugins


def register(plugins: pluggy.PluginManager, plugin: object, name: str | None = None) -> None:
    """Register a plugin; TypeError for what cannot be one."""
    if inspect.isclass(plugin):
        raise TypeError(f"it is the class {plugin.__name__}; name a module or an instance")
    plugins.register(plugin, name)
    if not plugins.get_hookcallers(plugin):
        raise TypeError(f"it is {shown(plugin)}, without any function that is marked with hookimpl")


def call(plugins: pluggy.PluginManager, hook: str, **arguments: object) -> Iterator[tuple[Any, str]]:
    """(what it returned, whose it is) of each plugin that implements a hook, the newest first."""
    for implementation in reversed(getattr(plugins.hook, hook).get_hookimpls()):
        whose = f"the plugin {implementation.plugin_name!r}"
        with blamed(whose):
            returned = implementation.function(*(arguments[name] for name in implementation.argnames))
        yield returned, whose


def brought(plugins: pluggy.PluginManager, hook: str, what: str) -> Iterator[tuple[Any, str]]:
    """(thing, whose it is) of all lists that a hook returned."""
    for things, whose in list(call(plugins, hook)):
        if not isinstance(things, list | tuple):
            raise RequestError(f"{whose} returned {shown(things)} from {hook}; it should be a list of {what}")
        yield from ((thing, whose) for thing in things)


def culprit(error: BaseException) -> str | None:
    """The plugin whose code an exception comes out of, and where; None for one of stagebench's own.

    An adapter's, a launcher's or a network's methods are asked all over the suite.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if any(Path(frame.filename).is_relative_to(folder) for folder in OWN):
            return None
        for name, plugin in manager().list_name_plugin():
            if any(Path(frame.filename).is_relative_to(place) for place in _places(plugin)):
                return f"the plugin {name!r} ({frame.filename}, line {frame.lineno})"
    return None


def _places(plugin: object) -> list[str]:
    """The folder of the package that a plugin is of; a module's own file where it is of none."""
    module = plugin if inspect.ismodule(plugin) else sys.modules.get(type(plugin).__module__)
    package = sys.modules.get((getattr(module, "__package__", "") or "").partition(".")[0])
    return [*getattr(package, "__path__", []), *filter(None, [getattr(module, "__file__", None)])]


def adapters() -> dict[str, Adapter]:
    """Every adapter by name, sorted; RequestError for one of another contract, with what to change."""
    found = dict(sorted(_named("adapter", Adapter).items()))  # type: ignore[type-abstract]  # only looked at
    for name, adapter in found.items():
        written_for = getattr(adapter, "contract", 1)
        if not isinstance(written_for, int):
            raise RequestError(f"the adapter {name!r} has contract = {shown(written_for)}; write {CONTRACT}")
        if written_for < CONTRACT:
            raise RequestError(
                f"the adapter {name!r} was written for contract {written_for}, this stagebench has {CONTRACT}. "
                f"Change\n{changes_since(written_for)}\nand set `contract = {CONTRACT}`, or uninstall it"
            )
        if written_for > CONTRACT:
            raise RequestError(
                f"the adapter {name!r} was written for contract {written_for}, this stagebench has {CONTRACT}; "
                "install a newer stagebench, or uninstall the adapter"
            )
        with blamed(f"the adapter {name!r}"):
            _check_hashable(adapter)
            _check_adapter(adapter)
    return found


def _check_hashable(plugin: object) -> None:
    try:
        hash(plugin)
    except TypeError as error:
        raise TypeError(f"it cannot be hashed ({error}); write @dataclass(eq=False)") from None


@cache
def _check_adapter(adapter: Adapter) -> None:
    """TypeError or ValueError for what an adapter declares of itself that is of another type, or of nothing there.

    What its methods return is held against the contract from now on.
    """
    check_declared(adapter, Adapter)
    able = checked(Capabilities, adapter.capabilities, "its capabilities", strict=True)
    if not able.strategies:
        raise ValueError("its capabilities name no strategy; it needs one at least")
    for strategy in able.strategies:
        for knob in (strategy.microbatches, strategy.model_parallel):
            if isinstance(knob, str) and knob and knob not in able.knobs:
                raise ValueError(
                    f"its strategy {strategy.name!r} names the knob {shown(knob)}; {known(knob, able.knobs)}"
                )
    _check_names(able)
    names = [strategy.name for strategy in able.strategies]
    for backend in adapter.backends:
        if backend.strategy not in names:
            right = known(backend.strategy, names)
            raise ValueError(f"its backend {backend.name!r} names the strategy {shown(backend.strategy)}; {right}")
    hold(type(adapter), Adapter)


def _check_names(able: Capabilities) -> None:
    kinds = {"strategy": [each.name for each in able.strategies], "format": [each.name for each in able.formats]}
    for kind, name in ((kind, name) for kind, several in kinds.items() for name in several):
        if not NAME.fullmatch(name):  # a folder of records is called by its format
            raise ValueError(f"its {kind} is called {shown(name)}; {NAMING}")


@cache
def _check_launcher(launcher: Launcher) -> None:
    check_declared(launcher, Launcher)
    hold(type(launcher), Launcher)


def oracle() -> Adapter:
    """The adapter that proofs compare with; RequestError where none, or more than one, declares itself as such."""
    found = [adapter for adapter in adapters().values() if adapter.oracle]
    if len(found) != 1:
        named = ", ".join(repr(adapter.name) for adapter in found) or "none"
        raise RequestError(f"one adapter is to be the oracle of proofs, and there is {named}; uninstall the others")
    return found[0]


def launchers() -> dict[str, Launcher]:
    """Every launcher by name, sorted."""
    found = dict(sorted(_named("launcher", Launcher).items()))  # type: ignore[type-abstract]  # as above
    for name, launcher in found.items():
        with blamed(f"the launcher {name!r}"):
            _check_hashable(launcher)
            _check_launcher(launcher)
    return found


def workloads() -> dict[str, Workload]:
    """Every workload by name, in the catalogue's order."""
    found = _named("workload", Workload)
    for name, workload in found.items():
        with blamed(f"the workload {name!r}"):
            check_declared(workload, Workload)
    return {
        name: workload._replace(graph=held_graph(Graph, workload.graph, f"the workload {name!r}"))
        for name, workload in found.items()
    }


def _named(kind: str, of: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for thing, whose in brought(manager(), f"stagebench_{kind}s", f"{kind}s"):
        with blamed(whose):
            if not isinstance(thing, of):
                raise TypeError(f"among its {kind}s is {shown(thing)}, no instance of {of.__module__}.{of.__name__}")
            name = getattr(thing, "name", None)
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise TypeError(f"one of its {kind}s has name = {shown(name)}; {NAMING}")
        if name in found:
            raise RequestError(f"two plugins bring the {kind} {name!r}; uninstall or rename one of them")
        found[name] = thing
    return found
