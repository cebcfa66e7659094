"""The plugin manager: finds plugins, checks their hooks, answers by name."""

from functools import cache

import pluggy

from suite.adapter import Adapter
from suite.errors import RequestError
from suite.hooks import PROJECT, Hooks
from suite.launcher import Launcher
from workloads.catalogue import Workload


@cache
def manager() -> pluggy.PluginManager:
    """The manager with every installed plugin; a hook whose name is misspelt is an error.

    The built-in ones come through the same entry-point group as a third party's
    (see pyproject.toml).
    """
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(Hooks)
    plugins.load_setuptools_entrypoints(PROJECT)
    for plugin in (plugin for brought in plugins.hook.stagebench_plugins() for plugin in brought):
        plugins.register(plugin)
    plugins.check_pending()
    return plugins


def adapters() -> dict[str, Adapter]:
    """Every adapter by name, sorted."""
    return _named("adapter", manager().hook.stagebench_adapters())


def launchers() -> dict[str, Launcher]:
    """Every launcher by name, sorted."""
    return _named("launcher", manager().hook.stagebench_launchers())


def workloads() -> dict[str, Workload]:
    """Every workload by name, in the catalogue's order."""
    return _named("workload", manager().hook.stagebench_workloads(), ordered=True)


def _named(kind: str, groups: list[list], ordered: bool = False) -> dict:  # type: ignore[type-arg]
    found: dict = {}  # type: ignore[type-arg]
    for thing in (thing for group in groups for thing in group):
        if thing.name in found:
            raise RequestError(f"two plugins bring the {kind} {thing.name!r}; uninstall or rename one of them")
        found[thing.name] = thing
    return found if ordered else dict(sorted(found.items()))
