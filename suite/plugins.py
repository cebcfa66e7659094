"""The plugin manager: finds plugins, checks what they bring, answers by name. Every refusal names the plugin."""

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import pluggy

from suite.contracts.adapter import Adapter, Capabilities, Format, Strategy
from suite.contracts.backend import Backend
from suite.contracts.hooks import PROJECT, Hooks
from suite.contracts.knobs import Knob
from suite.contracts.launcher import Launcher
from suite.contracts.versions import CONTRACT, MOVED, changes_since
from suite.errors import RequestError, StagebenchError
from suite.suggest import shown
from workloads.catalogue import Workload

A = TypeVar("A")
T = TypeVar("T", Adapter, Launcher, Workload)
# What an adapter, and its capabilities, name several of, each of a type.
TEXTS = ("requires", "builds_on", "out_of_memory", "arithmetic_variables", "exchange_variables", "other_variables")
OF_ADAPTER = {**dict.fromkeys(TEXTS, str), "backends": Backend}
WORDS = ("devices", "precisions", "tunings", "layer_kinds", "optimisers")
OF_CAPABILITIES = {**dict.fromkeys(WORDS, str), "strategies": Strategy, "formats": Format}
OWN = [Path(__file__).parents[1] / name for name in ("suite", "adapters", "cluster", "reports", "workloads")]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # also of folders and environments: it stays in its place


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
            register(plugins, point.load(), point.name)
    for plugin, whose in brought(plugins, "stagebench_plugins", "plugins"):
        with _blamed(whose):
            register(plugins, plugin)
    with _blamed("a plugin"):
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
        with _blamed(whose):
            returned = implementation.function(*(arguments[name] for name in implementation.argnames))
        yield returned, whose


def brought(plugins: pluggy.PluginManager, hook: str, what: str) -> Iterator[tuple[Any, str]]:
    """(thing, whose it is) of all lists that a hook returned."""
    for things, whose in list(call(plugins, hook)):
        if not isinstance(things, list | tuple):
            raise RequestError(f"{whose} returned {shown(things)} from {hook}; it should be a list of {what}")
        yield from ((thing, whose) for thing in things)


def asked(adapter: str, kind: Any, question: Callable[..., A], *about: object) -> A:
    """What an adapter's method says, of the type `kind`; RequestError names the adapter that fails, or says another."""
    with _blamed(f"the adapter {adapter!r}", f"fails at {question.__name__}"):
        said = question(*about)
        if not isinstance(said, kind):
            raise TypeError(f"it should be {getattr(kind, '__name__', kind)}, not {shown(said)}")
        return said


@contextmanager
def _blamed(whose: str, fails: str = "does not load") -> Iterator[None]:
    """Report a plugin's own mistake as such, with its place: every command needs all plugins."""
    try:
        yield
    except (StagebenchError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name not in MOVED:
            raise _mistake(whose, fails, error) from error
        raise RequestError(
            f"{whose} was written for an older contract: {error.name} is {MOVED[error.name]} now. "
            f"Change\n{changes_since(1)}\nand set `contract = {CONTRACT}` in its adapter"
        ) from error
    except BaseException as error:  # sys.exit at import would end every command without a word
        raise _mistake(whose, fails, error) from error


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


def _mistake(whose: str, fails: str, error: BaseException) -> RequestError:
    at = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if at.filename == __file__ else f" ({at.filename}, line {at.lineno})"
    return RequestError(f"{whose} {fails}: {type(error).__name__}: {error}{place}; mend or uninstall it")


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
        with _blamed(f"the adapter {name!r}"):
            _check_declared(adapter)
    return found


def _check_declared(adapter: Adapter) -> None:
    """TypeError for what an adapter declares of itself that is of another type."""
    able = adapter.capabilities
    if not isinstance(able, Capabilities):
        raise TypeError(f"its capabilities are {shown(able)}; return Capabilities(...)")
    for whose, parts in ((adapter, OF_ADAPTER), (able, OF_CAPABILITIES)):
        for name, kind in parts.items():
            value = getattr(whose, name)
            if not isinstance(value, tuple | list) or not all(isinstance(each, kind) for each in value):
                raise TypeError(f"its {name} are {shown(value)}; write a tuple of {kind.__name__}")
    if not isinstance(able.knobs, dict) or not all(isinstance(each, Knob) for each in able.knobs.values()):
        raise TypeError(f"its knobs are {shown(able.knobs)}; write a dictionary of Knob by name")


def oracle() -> Adapter:
    """The adapter that proofs compare with; RequestError where none, or more than one, declares itself as such."""
    found = [adapter for adapter in adapters().values() if adapter.oracle]
    if len(found) != 1:
        named = ", ".join(repr(adapter.name) for adapter in found) or "none"
        raise RequestError(f"one adapter is to be the oracle of proofs, and there is {named}; uninstall the others")
    return found[0]


def launchers() -> dict[str, Launcher]:
    """Every launcher by name, sorted."""
    return dict(sorted(_named("launcher", Launcher).items()))  # type: ignore[type-abstract]  # as above


def workloads() -> dict[str, Workload]:
    """Every workload by name, in the catalogue's order."""
    return _named("workload", Workload)


def _named(kind: str, of: type[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for thing, whose in brought(manager(), f"stagebench_{kind}s", f"{kind}s"):
        with _blamed(whose):
            if not isinstance(thing, of):
                raise TypeError(f"among its {kind}s is {shown(thing)}, no instance of {of.__module__}.{of.__name__}")
            name = getattr(thing, "name", None)
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise TypeError(
                    f"one of its {kind}s has name = {shown(name)}; take letters, digits, '.', '_' and '-', "
                    "a letter or a digit first, 64 at most"
                )
        if name in found:
            raise RequestError(f"two plugins bring the {kind} {name!r}; uninstall or rename one of them")
        found[name] = thing
    return found
