"""The plugin manager: finds plugins, checks their hooks, answers by name."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points

import pluggy

from suite.contracts.adapter import Adapter
from suite.contracts.hooks import PROJECT, Hooks
from suite.contracts.launcher import Launcher
from suite.errors import RequestError, StagebenchError
from workloads.catalogue import Workload


@cache
def manager() -> pluggy.PluginManager:
    """The manager with every installed plugin; RequestError for one that does not load or misspells a hook.

    The built-in ones come through the same entry-point group as a third party's
    (see pyproject.toml).
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    for point in entry_points(group=PROJECT):
        with _blamed(f"the plugin {point.name!r} ({point.value}, of {point.dist.name if point.dist else 'nobody'})"):
            plugins.register(point.load(), name=point.name)
    with _blamed("a plugin of a package that has many"):
        for plugin in (plugin for brought in plugins.hook.stagebench_plugins() for plugin in brought):
            plugins.register(plugin)
    with _blamed("a plugin"):
        plugins.check_pending()
    return plugins


@contextmanager
def _blamed(whose: str) -> Iterator[None]:
    """A plugin's own mistake is told as such, with its place: every command needs all plugins."""
    try:
        yield
    except StagebenchError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
        raise RequestError(f"{whose} does not load: {told}; mend or uninstall it") from error


def adapters() -> dict[str, Adapter]:
    """Every adapter by name, sorted."""
    return dict(sorted(_brought("adapter").items()))


def oracle() -> Adapter:
    """The adapter that proofs compare with; RequestError where none, or more than one, declares itself as such."""
    found = [adapter for adapter in adapters().values() if adapter.oracle]
    if len(found) != 1:
        named = ", ".join(repr(adapter.name) for adapter in found) or "none"
        raise RequestError(f"one adapter is to be the oracle of proofs, and there is {named}; uninstall the others")
    return found[0]


def launchers() -> dict[str, Launcher]:
    """Every launcher by name, sorted."""
    return dict(sorted(_brought("launcher").items()))


def workloads() -> dict[str, Workload]:
    """Every workload by name, in the catalogue's order."""
    return _brought("workload")


def _brought(kind: str) -> dict:  # type: ignore[type-arg]
    with _blamed(f"a plugin with {kind}s"):
        groups = getattr(manager().hook, f"stagebench_{kind}s")()
    found: dict = {}  # type: ignore[type-arg]
    for thing in (thing for group in groups for thing in group):
        if thing.name in found:
            raise RequestError(f"two plugins bring the {kind} {thing.name!r}; uninstall or rename one of them")
        found[thing.name] = thing
    return found
