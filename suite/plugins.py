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
from suite.contracts.versions import CONTRACT, MOVED, changes_since
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
    """Report a plugin's own mistake as such, with its place: every command needs all plugins."""
    try:
        yield
    except StagebenchError:
        raise
    except ModuleNotFoundError as error:
        if error.name not in MOVED:
            raise _not_loaded(whose, error) from error
        raise RequestError(
            f"{whose} was written for an older contract: {error.name} is {MOVED[error.name]} now. "
            f"Change\n{changes_since(1)}\nand set `contract = {CONTRACT}` in its adapter"
        ) from error
    except Exception as error:
        raise _not_loaded(whose, error) from error


def _not_loaded(whose: str, error: Exception) -> RequestError:
    at = traceback.extract_tb(error.__traceback__)[-1]
    reported = f"{type(error).__name__}: {error} ({at.filename}, line {at.lineno})"
    return RequestError(f"{whose} does not load: {reported}; mend or uninstall it")


def adapters() -> dict[str, Adapter]:
    """Every adapter by name, sorted; RequestError for one of another contract, with what to change."""
    found: dict[str, Adapter] = dict(sorted(_brought("adapter").items()))
    for name, adapter in found.items():
        written_for = getattr(adapter, "contract", 1)
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
    return found


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
