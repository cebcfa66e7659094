"""The plugin manager: finds plugins, checks what they bring, returns it by name. Every refusal names the plugin."""

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from stagebench.suite.contracts.adapter import Adapter, Capabilities
from stagebench.suite.contracts.hooks import CONTRACT, PROJECT, Hooks, changes_since
from stagebench.suite.contracts.launcher import Launcher
from stagebench.suite.contracts.model_server import INPROCESS, ModelServer
from stagebench.suite.errors import RequestError
from stagebench.suite.plugin_errors import PACKAGE, blamed, check_declared, check_methods, checked
from stagebench.suite.text import known, shown
from stagebench.workloads.catalogue import Workload
from stagebench.workloads.graph import Graph

R = TypeVar("R")
T = TypeVar("T", Adapter, Launcher, ModelServer, Workload)
OWN = [Path(__file__).parents[1] / name for name in ("suite", "adapters", "cluster", "reports", "workloads")]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # also the name of folders and environments
CONTEXT = re.compile(r"[1-9][0-9]{0,8}")
NAMING = "take letters, digits, '.', '_' and '-', a letter or a digit first, 64 at most"


@cache
def manager() -> pluggy.PluginManager:
    """Return the manager with every installed plugin; RequestError for one that does not load or misspells a hook.

    Built-in plugins come through the same entry-point group as a third party's (see pyproject.toml).
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    for point in entry_points(group=PROJECT):
        with blamed(f"the plugin {point.name!r} ({point.value}, of {point.dist.name if point.dist else 'no package'})"):
            register(plugins, point.load(), point.name)
    for plugin, whose in brought(plugins, "stagebench_plugins", "plugins"):
        with blamed(whose):
            register(plugins, plugin)
    with blamed("a plugin"):
        plugins.check_pending()
    return plugins


def register(plugins: pluggy.PluginManager, plugin: object, name: str | None = None) -> None:
    """Register a plugin; TypeError for an object that cannot be one."""
    if inspect.isclass(plugin):
        raise TypeError(f"it is the class {plugin.__name__}; name a module or an instance")
    plugins.register(plugin, name)
    if not plugins.get_hookcallers(plugin):
        raise TypeError(f"it is {shown(plugin)}, without any function that is marked with hookimpl")


def call(plugins: pluggy.PluginManager, hook: str, **arguments: object) -> Iterator[tuple[Any, str]]:
    """Yield (returned value, plugin in words) of each plugin that implements a hook, the newest first."""
    for implementation in reversed(getattr(plugins.hook, hook).get_hookimpls()):
        whose = f"the plugin {implementation.plugin_name!r}"
        with blamed(whose):
            returned = implementation.function(*(arguments[name] for name in implementation.argnames))
        yield returned, whose


def brought(plugins: pluggy.PluginManager, hook: str, what: str) -> Iterator[tuple[Any, str]]:
    """Yield (element, plugin in words) of all lists that a hook returned."""
    for things, whose in list(call(plugins, hook)):
        if not isinstance(things, list | tuple):
            raise RequestError(f"{whose} returned {shown(things)} from {hook}; it should be a list of {what}")
        yield from ((thing, whose) for thing in things)


def culprit(error: BaseException) -> str | None:
    """Return the plugin that raised an exception, and the place in its code; None if stagebench itself did."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if any(Path(frame.filename).is_relative_to(folder) for folder in OWN):
            return None
        for name, plugin in manager().list_name_plugin():
            if any(Path(frame.filename).is_relative_to(place) for place in _places(plugin)):
                return f"the plugin {name!r} ({frame.filename}, line {frame.lineno})"
    return None


def _places(plugin: object) -> list[str]:
    """Return the folders of a plugin's package, and the file of its module."""
    module = plugin if inspect.ismodule(plugin) else sys.modules.get(type(plugin).__module__)
    top = (getattr(module, "__package__", "") or "").partition(".")[0]
    package = sys.modules.get(top) if top != PACKAGE else None  # of ours, `OWN` has the folders
    return [*getattr(package, "__path__", []), *filter(None, [getattr(module, "__file__", None)])]


def once(gather: Callable[[], R]) -> Callable[[], R]:
    """Keep what a function gathers from plugins until another set of them is registered: checks cost milliseconds."""
    kept = cache(lambda plugins: gather())

    @wraps(gather)
    def get() -> R:
        return kept(frozenset(manager().get_plugins()))

    return get


@once
def adapters() -> dict[str, Adapter]:
    """Return every adapter by name, sorted; RequestError for one of another contract, with the necessary changes."""
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
            _check_adapter(adapter)
    return found


def _check_adapter(adapter: Adapter) -> None:
    """Raise TypeError or ValueError for a declaration of another type, or a name in it that does not exist."""
    check_declared(adapter, Adapter)
    check_methods(adapter, Adapter)
    able = checked(Capabilities, adapter.capabilities, "its capabilities", strict=True)
    if not able.strategies:
        raise ValueError("its capabilities name no strategy; it needs one at least")
    for strategy in able.strategies:
        for knob in (strategy.microbatches, strategy.model_parallel):
            if isinstance(knob, str) and knob not in ("", *able.knobs):
                right = known(knob, able.knobs)
                raise ValueError(f"its strategy {strategy.name!r} names the knob {shown(knob)}; {right}")
    names = [strategy.name for strategy in able.strategies]
    called = [*(("strategy", name) for name in names), *(("format", form.name) for form in able.formats)]
    wrong = next((pair for pair in called if not NAME.fullmatch(pair[1])), None)
    if wrong:  # a folder of records is called by its format
        raise ValueError(f"its {wrong[0]} is called {shown(wrong[1])}; {NAMING}")
    for backend in adapter.backends:
        if backend.strategy not in names:
            right = known(backend.strategy, names)
            raise ValueError(f"its backend {backend.name!r} names the strategy {shown(backend.strategy)}; {right}")


def oracle() -> Adapter:
    """Return the adapter that proofs compare with; RequestError unless exactly one declares itself as such."""
    found = [adapter for adapter in adapters().values() if adapter.oracle]
    if len(found) != 1:
        named = ", ".join(repr(adapter.name) for adapter in found) or "none"
        raise RequestError(f"one adapter is to be the oracle of proofs, and there is {named}; uninstall the others")
    return found[0]


@once
def launchers() -> dict[str, Launcher]:
    """Return every launcher by name, sorted."""
    found = dict(sorted(_named("launcher", Launcher).items()))  # type: ignore[type-abstract]  # as above
    for name, launcher in found.items():
        with blamed(f"the launcher {name!r}"):
            check_declared(launcher, Launcher)
            check_methods(launcher, Launcher)
    return found


@once
def model_servers() -> dict[str, ModelServer]:
    """Return every model server by name, sorted; not `inprocess`, which is none."""
    found = dict(sorted(_named("model server", ModelServer).items()))
    for name, server in found.items():
        with blamed(f"the model server {name!r}"):
            check_declared(server, ModelServer)
            if name == INPROCESS or name in adapters():
                raise ValueError("plans call the load without a server, or an adapter, so; rename it")
    return found


class Workloads(Mapping[str, Workload]):
    """Workloads by name, in the catalogue's order; the name of one over tokens may say its context: `gpt2@32`."""

    def __init__(self, registered: dict[str, Workload]) -> None:
        self._registered = registered

    def __getitem__(self, name: str) -> Workload:
        """Return a workload, with the context that its name says; RequestError for one that it cannot have."""
        whole, at, context = name.partition("@")
        workload = self._registered[whole]
        if not at:
            return workload
        graph = graph_of(workload)
        try:
            if not CONTEXT.fullmatch(context):
                raise ValueError(f"{context!r} is no number of tokens")
            shorter = graph.with_context(int(context))
        except ValueError as error:
            remedy = f"write {whole}@N, N from 1 to {graph.input_shape[0]}" if graph.vocabulary else f"write {whole}"
            raise RequestError(f"there is no workload {shown(name)}: {error}; {remedy}") from error
        return workload._replace(name=name, graph=lambda: shorter)

    def __iter__(self) -> Iterator[str]:
        """Yield the names without a context."""
        return iter(self._registered)

    def __len__(self) -> int:
        """Count them."""
        return len(self._registered)


@once
def workloads() -> Workloads:
    """Return every workload."""
    found = _named("workload", Workload)
    for name, workload in found.items():
        with blamed(f"the workload {name!r}"):
            check_declared(workload, Workload)
    return Workloads(found)


def graph_of(workload: Workload) -> Graph:
    """Build a workload's graph; RequestError blames the workload for an exception or another object."""
    name = getattr(workload.graph, "__name__", "graph")
    with blamed(f"the workload {workload.name!r}", f"fails at {name}", refused=True):
        graph = workload.graph()
        if not isinstance(graph, Graph):
            raise TypeError(f"what it returned is {shown(graph)}; return {Graph.__module__}.{Graph.__name__}")
        return graph


def _named(kind: str, of: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for thing, whose in brought(manager(), f"stagebench_{kind.replace(' ', '_')}s", f"{kind}s"):
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
