"""A plugin's own mistake is one sentence that names the plugin: every command needs all plugins."""

import errno
import functools
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest

from stagebench.suite import plugins
from stagebench.suite.contracts.adapter import Adapter, Backend, Format, Strategy
from stagebench.suite.contracts.case import Case, Placement
from stagebench.suite.contracts.hooks import CHANGES, CONTRACT, PROJECT, Hooks, changes_since, hookimpl
from stagebench.suite.contracts.launcher import Process
from stagebench.suite.data.reader_check import Check
from stagebench.suite.errors import RequestError
from stagebench.suite.plan.checks import refusal, refused_format
from stagebench.suite.plugin_errors import ask, blamed, check_methods
from stagebench.suite.processes.attempt import Limits
from stagebench.suite.processes.interpreters import Interpreter, find
from stagebench.suite.processes.launch import Launch, launch_of
from stagebench.suite.proofs.make import Proofs, configuration_of_proof
from stagebench.suite.session.cases import declared_of
from tests.suite.conftest import Alpha, Local
from tests.support import errors

CASE = Case("alpha", "ddp", "mnist_small", Placement(ranks_per_node=2, launcher="local"), batch=8)


class Empty:
    pass


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (lambda: 7, "it is 7, without any function that is marked with hookimpl"),
        (lambda: Empty, "it is the class Empty; name a module or an instance"),
        (lambda: sys.exit(0), "SystemExit: 0"),
    ],
)
def test_what_is_no_plugin_is_refused_by_name(load, told, monkeypatch):
    package = SimpleNamespace(name="stagebench-lumen")
    point = SimpleNamespace(name="lumen", value="lumen.plugin", dist=package, load=load)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    with pytest.raises(RequestError, match=r"the plugin 'lumen' \(lumen.plugin, of stagebench-lumen\) does not") as got:
        plugins.manager.__wrapped__()
    assert told in str(got.value)


@pytest.fixture
def registered(monkeypatch):
    """Makes a plugin `lumen` with one hook the only one that is installed."""

    def register(hook, implementation):
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(Hooks)
        plugins.register(manager, type("Lumen", (), {hook: hookimpl(implementation)})(), "lumen")
        monkeypatch.setattr(plugins, "manager", lambda: manager)

    return register


def declaring(**changes: Any) -> Alpha:
    return type("Declaring", (Alpha,), {"capabilities": replace(Alpha().capabilities, **changes)})()


def with_(**attributes: object) -> Alpha:
    adapter = Alpha()
    vars(adapter).update(attributes)
    return adapter


def raising() -> Alpha:
    raise ValueError("no libalpha")


@pytest.mark.parametrize(
    ("bring", "told"),
    [
        (lambda: None, "returned None from stagebench_adapters; it should be a list of adapters"),
        (lambda: [3], "among its adapters is 3, no instance of stagebench.suite.contracts.adapter.Adapter"),
        (lambda: [with_(name="../../etc")], "has name = '../../etc'; take letters"),
        (lambda: [with_(name="x" * 5000)], "take letters, digits"),
        (
            lambda: [type("Broken", (Alpha,), {"capabilities": 3})()],
            "its capabilities is 3; it should be an instance of Capabilities",
        ),
        (lambda: [declaring(strategies=("single",))], "strategies.0 is 'single'; it should be an instance of Strategy"),
        (lambda: [declaring(knobs={"a": 3})], "knobs.a is 3; it should be an instance of Knob"),
        (lambda: [with_(oracle="no")], "its oracle is 'no'; it should be a valid boolean"),
        (lambda: [declaring(strategies=(Strategy("a/b", "", ""),))], "its strategy is called 'a/b'; take letters"),
        (lambda: [declaring(strategies=())], "its capabilities name no strategy; it needs one at least"),
        (
            lambda: [declaring(strategies=(Strategy("pipe", "", "parts", microbatches="pieces"),))],
            "its strategy 'pipe' names the knob 'pieces'; known: format, bucket",
        ),
        (lambda: [with_(backends=(Backend("mpi", "MPI", "alpha.comm:Mpi", "all"),))], "'mpi' names the strategy 'all'"),
        (lambda: [with_(backends=("x",))], "its backends: in ('x',), 0 is 'x'; it should be an instance of Backend"),
        (lambda: [with_(contract="2")], f"has contract = '2'; write {CONTRACT}"),
        (lambda: [raising()], "ValueError: no libalpha"),
    ],
)
def test_what_a_plugin_brings_is_checked_by_type_and_name(bring, told, registered):
    registered("stagebench_adapters", lambda self: bring())
    with pytest.raises(RequestError, match=r"the plugin 'lumen'|the adapter 'alpha'") as got:
        plugins.adapters()
    assert told in str(got.value)
    assert len(str(got.value)) < 500


@pytest.mark.parametrize("leaving", [SystemExit, GeneratorExit, BaseException])
def test_a_command_s_hook_that_leaves_is_named(leaving):
    class Lumen:
        @hookimpl
        def stagebench_commands(self, app: object) -> None:
            raise leaving(3)

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(Lumen(), "lumen")
    with pytest.raises(RequestError, match=f"the plugin 'lumen' does not load: {leaving.__name__}: 3"):
        list(plugins.call(manager, "stagebench_commands", app=None))


def in_plan(adapter: Alpha, folder: Path) -> object:
    graph = plugins.workloads()["mnist_small"].graph()
    return refusal(adapter, adapter.capabilities, CASE, graph, {"local": Local()})


def in_plan_of_records(adapter: Alpha, folder: Path) -> object:
    able = replace(adapter.capabilities, formats=(Format("whole", "images"),))
    case = CASE.on(data=str(folder), input=CASE.input._replace(format="whole"))
    return refused_format(adapter, able, case, folder, plugins.workloads()["mnist_small"], lambda *about: None)


def in_readers(adapter: Alpha, folder: Path) -> object:
    check = object.__new__(Check)
    check.workload, check._device, check._knobs = plugins.workloads()["mnist_small"], "", {}
    return check.refusal(adapter)


def launched(adapter: Alpha, folder: Path) -> Launch:
    return launch_of(CASE, Limits(1, 1), {}, folder / "bundle", Interpreter(Path(sys.executable), "here", "3", {}))


def in_key(adapter: Alpha, folder: Path) -> object:
    return Proofs({})._key(launched(adapter, folder))


def in_request(adapter: Alpha, folder: Path) -> object:
    return launched(adapter, folder)._request(folder, folder / "job.json", 1)


def in_placement(adapter: Alpha, folder: Path) -> object:
    return launched(adapter, folder)._placement_problem(defaultdict(str), {})


def in_proof(adapter: Alpha, folder: Path) -> object:
    return configuration_of_proof(CASE, adapter, plugins.workloads()["mnist_small"])


@pytest.mark.parametrize(
    ("site", "method", "answer", "told"),
    [
        (in_plan, "unsupported", lambda case: 1 / 0, r"ZeroDivisionError: division by zero \(\S+test_plugins.py, "),
        (in_plan, "unsupported", lambda case: True, "what it returned is True; it should be a valid string"),
        (in_readers, "unsupported", lambda case: True, "what it returned is True; it should be a valid string"),
        (in_plan, "model_parallel_size", lambda case: 0, "returned is 0; it should be greater than or equal to 1"),
        (in_proof, "microbatches", lambda case: 0, "returned is 0; it should be greater than or equal to 1"),
        (
            lambda adapter, folder: declared_of(CASE, adapter),
            "model_parallel_size",
            lambda case: None,
            "returned is None; it should be a valid integer",
        ),
        (in_plan, "microbatches", lambda case: None, "returned is None; it should be a valid integer"),
        (in_plan, "mpi", lambda case: None, "returned is None; it should be a valid string"),
        (in_request, "mpi", lambda case: 3, "returned is 3; it should be a valid string"),
        (in_plan_of_records, "unreadable", lambda form: 7, "returned is 7; it should be a valid string"),
        (lambda it, folder: find(it), "missing", lambda python: 7, "returned is 7; it should be a valid string"),
        (in_key, "environ", lambda case, interpreter: None, "returned is None; it should be a valid dictionary"),
        (in_request, "environ", lambda case, interpreter: {"A;id": "3"}, r"in {'A;id': '3'}, .* it should match"),
        (in_request, "environ", lambda case, interpreter: {"A": "\0"}, "A is .* it should match "),
        (launched, "sidecars", lambda case: ["server.py"], "0 is 'server.py'; it should be a valid tuple"),
        (in_placement, "wire_share", lambda case: float("nan"), "returned is nan; it should be"),
        (in_placement, "wire_share", lambda case: 2.0, "returned is 2.0; it should be less than or equal to 1"),
        (in_proof, "synchronous", lambda case: None, "returned is None; it should be a valid boolean"),
    ],
)
def test_a_wrong_answer_of_an_adapter_is_blamed_on_it(site, method, answer, told, startable, tmp_path):
    adapter = startable.adapters["alpha"]
    site(adapter, tmp_path)  # the right answers pass
    vars(adapter)[method] = answer
    with pytest.raises(RequestError, match=f"'alpha' fails at {method}: .*{told}.*; fix"):
        site(adapter, tmp_path)


def test_a_launcher_s_wrong_word_on_what_is_missing_is_blamed_on_it(startable, tmp_path):
    vars(startable.launchers["local"])["missing"] = lambda placement, interpreter: ["mpiexec"]
    with pytest.raises(RequestError, match=r"the launcher 'local' fails at missing: .*returned is \['mpiexec'\]; it"):
        launched(startable.adapters["alpha"], tmp_path)


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        (None, "what it returned is None; it should be a valid list"),
        ([Process("srun")], "0.tokens is 'srun'; it should be a valid tuple"),  # type: ignore[arg-type]
        ([Process(("srun",), {"A;id": "b"})], r"is 'A;id'; it should match \[A-Za-z_\]"),
        ([Process(("srun", Path("x")))], r"0.tokens.1 is .*Path\('x'\); it should be a valid string"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_answer_of_a_launcher_is_blamed_on_it(processes, told):
    with pytest.raises(RequestError, match=f"the launcher 'local' fails at processes: TypeError: .*{told}"):
        ask(made(lambda self, request: processes), "processes", None)


def made(processes: Callable[..., object]) -> Any:
    """A launcher with this method."""
    return type("Made", (Local,), {"processes": processes})()


@pytest.mark.parametrize("refused", [OSError(errno.ENOSPC, "No space left on device"), MemoryError()])
def test_what_the_disk_or_the_memory_refuses_is_no_mistake_of_a_launcher_s(refused):
    def processes(self, request):
        raise refused

    with pytest.raises(type(refused)):
        ask(made(processes), "processes", None)


def test_a_right_answer_comes_back_and_a_missing_file_is_the_launcher_s(tmp_path):
    started = [Process(("srun", "x"), {"A": "b"}, rank=0)]
    assert ask(made(lambda self, request: started), "processes", None) == started
    assert ask(type("Made", (Alpha,), {"unsupported": lambda self, case: "no"})(), "unsupported", None) == "no"
    reads = made(lambda self, request: (tmp_path / "hosts").read_text())
    with pytest.raises(RequestError, match=f"the launcher 'local' fails at processes: FileNotFound.*{tmp_path}/hosts"):
        ask(reads, "processes", None)


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (lambda self: None, "its method unsupported: too many positional arguments; define unsupported"),
        (lambda self, case, more: None, "its method unsupported: missing a required argument: 'more'; define uns"),
        (staticmethod(lambda: None), "its method unsupported: too many positional arguments"),
        (3, "its method unsupported: 3 is not a callable object"),
    ],
)
def test_a_method_that_cannot_be_called_is_refused_where_it_registers(method, told):
    with pytest.raises(TypeError, match=re.escape(told)):
        check_methods(type("Made", (Alpha,), {"unsupported": method})(), Adapter)


@pytest.mark.parametrize(
    "method",
    [functools.cache(lambda self, case: None), staticmethod(lambda case: None), lambda self, *about, **named: None],
)
def test_a_method_may_be_made_in_any_way(method):
    adapter = type("Made", (Alpha,), {"unsupported": method})()
    check_methods(adapter, Adapter)
    assert ask(adapter, "unsupported", None) is None


def test_a_launcher_s_attributes_are_checked(registered):
    registered("stagebench_launchers", lambda self: [type("Wrong", (Local,), {"order": "first"})()])
    with pytest.raises(RequestError, match="the launcher 'local' does not load: TypeError: its order is 'first'; it"):
        plugins.launchers()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"graph": partial(int, 3)}, "the workload 'tiny' fails at graph: TypeError: what it returned is 3; return"),
        ({"proof_batch": "8"}, "its proof_batch is '8'; it should be a valid integer"),
        ({"graph": lambda: 3}, "the workload 'tiny' fails at <lambda>: TypeError: what it returned is 3; return"),
        ({"graph": lambda: 1 / 0}, "the workload 'tiny' fails at <lambda>: ZeroDivisionError: .*test_plugins.py, line"),
        ({"graph": 3}, "the workload 'tiny' does not load: TypeError: its graph is 3; it should be callable"),
        ({"optimiser": (1, 2)}, "the workload 'tiny' does not load: TypeError: its optimiser is .1, 2.; write"),
    ],
)
def test_so_is_what_a_network_is(change, told, registered):
    workload = plugins.workloads()["mnist_small"]._replace(name="tiny", **change)  # type: ignore[arg-type]

    registered("stagebench_workloads", lambda self: [workload])
    with pytest.raises(RequestError, match=told):
        plugins.graph_of(plugins.workloads()["tiny"])


def test_what_comes_out_of_a_plugin_s_code_is_blamed_on_it(registered):
    """A launcher's method, or a network's: they are asked all over the suite."""

    def missing(self) -> None:
        raise ValueError("boom")

    registered("stagebench_launchers", missing)
    with pytest.raises(ValueError, match="boom") as found:
        missing(None)
    assert re.fullmatch(r"the plugin 'lumen' \(\S+test_plugins\.py, line \d+\)", plugins.culprit(found.value) or "")


def test_a_defect_of_our_own_is_nobody_else_s():
    with pytest.raises(AttributeError) as found:
        plugins.adapters.nothing  # type: ignore[attr-defined]  # noqa: B018 - it raises
    assert plugins.culprit(found.value) is None


def test_every_version_says_what_it_changed_and_an_older_import_is_named_with_its_new_place():
    assert sorted(CHANGES) == list(range(2, CONTRACT + 1))
    assert changes_since(CONTRACT) == ""
    assert "Knob from stagebench.suite.contracts.knobs" in changes_since(1)


@pytest.mark.parametrize("name", ["suite", "suite.adapter", "suite.contracts.hooks", "workloads.absent"])
def test_an_import_of_an_older_contract_is_refused_in_a_clone_too(name):
    listed = errors.raising(RequestError, "the plugin 'lumen'", name.partition(".")[0], changes_since(1), CONTRACT)
    with listed, blamed("the plugin 'lumen'"):
        importlib.import_module(name)


def test_an_adapter_of_an_older_contract_is_told_what_to_change_and_of_a_newer_one_to_upgrade(toys):
    toys.adapters["alpha"].contract = 1
    words = f"'alpha' was written for contract 1, this stagebench has {CONTRACT}. Change\n  1. plugin.py: import Knob"
    with pytest.raises(RequestError) as caught:
        plugins.adapters.__wrapped__()
    assert words in str(caught.value)
    toys.adapters["alpha"].contract = CONTRACT + 1
    with pytest.raises(RequestError, match="newer stagebench"):
        plugins.adapters.__wrapped__()
