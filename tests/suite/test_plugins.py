"""A plugin's own mistake is one sentence that names the plugin: every command needs all plugins."""

import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pluggy
import pytest

from suite import plugins
from suite.contracts.hooks import PROJECT, Hooks, hookimpl
from suite.errors import RequestError
from tests.suite.conftest import Alpha, Local


class Point:
    """An entry point of a package `lumen`."""

    name, value, dist = "lumen", "lumen.plugin", SimpleNamespace(name="stagebench-lumen")

    def __init__(self, load: Callable[[], object]) -> None:
        self.load = load


def leave() -> object:
    raise SystemExit(0)


class Empty:
    pass


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (lambda: 7, "it is 7, without any function that is marked with hookimpl"),
        (lambda: None, "it is None, without"),
        (lambda: Empty, "it is the class Empty; name a module or an instance"),
        (lambda: types.ModuleType("blank"), "without any function"),
        (leave, "SystemExit: 0"),
    ],
)
def test_what_is_no_plugin_is_refused_by_name(
    load: Callable[[], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: [Point(load)])
    with pytest.raises(RequestError, match=r"the plugin 'lumen' \(lumen.plugin, of stagebench-lumen\) does not") as got:
        plugins.manager.__wrapped__()
    assert told in str(got.value)


def named(name: object) -> Alpha:
    adapter = Alpha()
    adapter.name = name  # type: ignore[assignment]
    return adapter


def broken() -> Alpha:
    class Broken(Alpha):
        capabilities = 3  # type: ignore[assignment]

    return Broken()


def declaring(**changes: object) -> Alpha:
    class Declaring(Alpha):
        capabilities = replace(Alpha().capabilities, **changes)  # type: ignore[assignment, arg-type]

    return Declaring()


def with_(**attributes: object) -> Alpha:
    adapter = Alpha()
    vars(adapter).update(attributes)
    return adapter


def old() -> Alpha:
    adapter = Alpha()
    adapter.contract = "2"  # type: ignore[assignment]
    return adapter


def raising() -> Alpha:
    raise ValueError("no libalpha")


@pytest.mark.parametrize(
    ("bring", "told"),
    [
        (lambda: None, "returned None from stagebench_adapters; it should be a list of adapters"),
        (lambda: Alpha(), "it should be a list of adapters"),
        (lambda: [3], "among its adapters is 3, no instance of suite.contracts.adapter.Adapter"),
        (lambda: [Alpha], "no instance of suite.contracts.adapter.Adapter"),
        (lambda: [Local()], "no instance of suite.contracts.adapter.Adapter"),
        (lambda: [named(None)], "has name = None; take letters"),
        (lambda: [named("../../etc")], "has name = '../../etc'; take letters"),
        (lambda: [named("x" * 5000)], "take letters, digits"),
        (lambda: [broken()], "its capabilities are 3; return Capabilities(...)"),
        (lambda: [declaring(strategies=("single",))], "its strategies are ('single',); write a tuple of Strategy"),
        (lambda: [declaring(strategies=3)], "its strategies are 3; write a tuple of Strategy"),
        (lambda: [declaring(formats=("x",))], "its formats are ('x',); write a tuple of Format"),
        (lambda: [declaring(devices="cpu")], "its devices are 'cpu'; write a tuple of str"),
        (lambda: [declaring(knobs={"a": 3})], "its knobs are {'a': 3}; write a dictionary of Knob by name"),
        (lambda: [with_(requires=None)], "its requires are None; write a tuple of str"),
        (lambda: [with_(backends=("x",))], "its backends are ('x',); write a tuple of Backend"),
        (lambda: [old()], "has contract = '2'; write 2"),
        (lambda: [raising()], "ValueError: no libalpha"),
    ],
)
def test_what_a_plugin_brings_is_checked_by_type_and_name(
    bring: Callable[[], object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lumen:
        @hookimpl
        def stagebench_adapters(self) -> object:
            return bring()

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    plugins.register(manager, Lumen(), "lumen")
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    with pytest.raises(RequestError, match=r"the plugin 'lumen'|the adapter 'alpha'") as got:
        plugins.adapters()
    assert told in str(got.value)
    assert len(str(got.value)) < 500


@pytest.mark.parametrize("leaving", [SystemExit, GeneratorExit, BaseException])
def test_a_command_s_hook_that_leaves_is_named(leaving: type[BaseException]) -> None:
    class Lumen:
        @hookimpl
        def stagebench_commands(self, app: object) -> None:
            raise leaving(3)

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(Lumen(), "lumen")
    with pytest.raises(RequestError, match=f"the plugin 'lumen' does not load: {leaving.__name__}: 3"):
        list(plugins.call(manager, "stagebench_commands", app=None))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            lambda case: 1 / 0,
            "the adapter 'alpha' fails at <lambda>: ZeroDivisionError: .*test_plugins",
        ),
        (lambda case: True, r"fails at <lambda>: TypeError: it should be .*None, not True"),
        (lambda case: sys.exit(3), "fails at <lambda>: SystemExit: 3"),
    ],
)
def test_what_an_adapter_s_method_does_wrong_is_its_own(answer: Callable[[object], str | None], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        plugins.asked("alpha", str | None, answer, None)
    assert plugins.asked("alpha", str | None, lambda case: "no", None) == "no"


def test_what_comes_out_of_a_plugin_s_code_is_blamed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's method, or a network's: they are asked all over the suite."""

    class Lumen:
        @hookimpl
        def stagebench_launchers(self) -> list[object]:
            return []

        def missing(self) -> None:
            raise ValueError("boom")

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(Lumen(), "lumen")
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    with pytest.raises(ValueError, match="boom") as found:
        Lumen().missing()
    assert re.fullmatch(r"the plugin 'lumen' \(\S+test_plugins\.py, line \d+\)", plugins.culprit(found.value) or "")


def test_a_defect_of_our_own_is_nobody_else_s() -> None:
    with pytest.raises(AttributeError) as found:
        plugins.asked("alpha", int, None)  # type: ignore[arg-type]
    assert plugins.culprit(found.value) is None
