"""Toy plugins, registered as a third party's would be: what plans and the command line are tried on."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pluggy
import pytest
from typer.testing import CliRunner

from stagebench.cluster import local
from stagebench.suite import builtin, plugins
from stagebench.suite.cli import app
from stagebench.suite.contracts.adapter import Adapter, Capabilities, Format, Strategy
from stagebench.suite.contracts.case import Configuration, Placement
from stagebench.suite.contracts.hooks import PROJECT, Hooks, hookimpl
from stagebench.suite.contracts.knobs import Knob
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.errors import RequestError
from stagebench.suite.plan import load, resolve
from stagebench.suite.results.records import About
from stagebench.suite.results.run_folder import RunFolder
from tests.reports.made_run import MadeRun


class Alpha(Adapter):
    contract = 4
    name, title, package, trainer = "alpha", "Alpha", "toys.alpha", "toys.alpha.worker:AlphaTrainer"
    requires, environment, remedy = ("no_such_framework",), "alpha", "stagebench env make alpha"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            strategies=(
                Strategy("single", self.trainer, "one rank", ("local", "many"), distributed=False),
                Strategy("ddp", self.trainer, "all-reduce", ("local", "many")),
                Strategy("mirror", self.trainer, "one process", ("local",), distributed=False, several_devices=True),
                Strategy("free", self.trainer, "asynchronous", ("local",), synchronous=False),
                Strategy("pipe", self.trainer, "a network in two parts", ("local",)),
            ),
            devices=("cpu", "cuda"),
            precisions=("float32", "bfloat16"),
            knobs={
                "format": Knob(("auto", "last"), "auto", "memory format"),
                "bucket": Knob(int, 25, "MB of a bucket"),
            },
        )

    def synchronous(self, case: Configuration) -> bool:
        return super().synchronous(case) and case.knobs.get("bucket") != 1  # one bit

    def model_parallel_size(self, case: Configuration) -> int:
        return 2 if case.strategy == "pipe" else 1

    def microbatches(self, case: Configuration) -> int:
        return 3 if case.strategy == "pipe" else 1

    def unsupported(self, case: Configuration) -> str | None:
        if case.strategy == "ddp" and case.batch == 13:
            return "alpha is superstitious"
        return None


class Beta(Adapter):
    contract = 4
    name, title, package, trainer = "beta", "Beta", "toys.beta", "toys.beta.worker:BetaTrainer"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            strategies=(
                Strategy("single", self.trainer, "one rank", ("local",), distributed=False),
                Strategy("ring", self.trainer, "", ("many",)),
            ),
            tunings=("default",),
            layer_kinds=("conv", "dense", "relu", "max_pool", "flatten"),
            knobs={"overlap": Knob(("none", "merged"), "merged", "hides communication")},
            real_data=False,
        )


class Local(Launcher):
    name, title = "local", "this machine"
    several_hosts = False

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        return None

    def processes(self, request: Request) -> list[Process]:
        return [Process(request.command)]


class Many(Local):
    name, title = "many", "many machines"
    several_hosts = True

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        return "there is no manyexec; install it: pip install manyexec"


class Toys:
    """Fresh instances every time: a test may change its own."""

    def __init__(self) -> None:
        self.adapters: list[Adapter] = [Alpha(), Beta()]
        self.launchers: list[Launcher] = [Local(), Many()]

    @hookimpl
    def stagebench_adapters(self) -> list[Adapter]:
        return self.adapters

    @hookimpl
    def stagebench_launchers(self) -> list[Launcher]:
        return self.launchers


@pytest.fixture
def toys(monkeypatch):
    """The toys and the built-in workloads, by name; the command line sees the same ones."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    manager.register(Toys())
    manager.register(builtin)
    manager.check_pending()
    monkeypatch.setattr(plugins, "manager", lambda: manager)
    return SimpleNamespace(
        adapters=plugins.adapters(), launchers=plugins.launchers(), workloads=plugins.workloads(), manager=manager
    )


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    """An empty data home: no test sees the data sets of the person who runs it."""
    home = tmp_path / "data-home"
    monkeypatch.setenv("STAGEBENCH_DATA", str(home))
    return home


@pytest.fixture
def plan_file(tmp_path):
    """Writes a plan and returns its path."""

    def write(text):
        path = tmp_path / "plan.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def cases(toys, plan_file):
    """Resolves what a plan named x says, with the toys."""

    def resolved(text):
        return resolve(load(plan_file(f'name = "x"\n{text}')), plugins.adapters(), toys.launchers, toys.workloads)

    return resolved


@pytest.fixture
def stagebench(toys, monkeypatch):
    """Run a command line with the toy plugins."""
    monkeypatch.setattr(app, "manager", lambda: toys.manager)

    def run(*arguments):
        result = CliRunner().invoke(app.build(), list(arguments))
        return SimpleNamespace(code=result.exit_code, out=result.output, stdout=result.stdout, error=result.exception)

    return run


@pytest.fixture
def refusal(stagebench):
    """What a command line is refused with: the message of a request's error, or of this kind."""

    def message(*arguments, kind=RequestError):
        error = stagebench(*map(str, arguments)).error
        assert isinstance(error, kind), error
        return str(error)

    return message


@pytest.fixture
def startable(toys, monkeypatch):
    """Toys whose processes start: they get the worker tests' trainer and the real launcher."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "worker"))
    toys.launchers["local"].processes = local.Local().processes
    for adapter in toys.adapters.values():
        adapter.package, adapter.trainer = "toy", "toy:ToyTrainer"
        adapter.requires = ("json",)  # every Python has it: it is really looked for and found
    return toys


class Gamma(Adapter):
    """Packs and reads records by the worker tests' trainer; `slip` says what its reader gets wrong."""

    contract = 4
    name, title, package = "gamma", "Gamma", "toy"
    requires, environment, remedy = ("PIL",), "gamma", "tox run -e gamma"
    slip = "none"
    lacks = ""  # the format whose reader lacks a library here
    room = 1 << 30  # samples that its disk has room for

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            strategies=(Strategy("single", "toy:PackingToy", "one rank", ("local",), distributed=False),),
            optimisers=("adam", "sgd"),
            knobs={"slip": Knob(str, self.slip, "what goes wrong"), "room": Knob(int, self.room, "samples")},
            formats=(
                Format("whole", "images as they are", ("folder",)),
                Format("cut", "what a network sees", ("folder", "arrays"), whole=False),
                Format("ordered", "one by one", ("arrays",), ordered=True, whole=False),
            ),
        )

    def unreadable(self, form: Format) -> str | None:
        return "there is no libgamma.so.1; build it" if form.name == self.lacks else None


@pytest.fixture
def gamma(startable, monkeypatch):
    """Gamma beside the toys, on the real launcher, in this interpreter."""

    class Plugin:
        @hookimpl
        def stagebench_adapters(self) -> list[Adapter]:
            return [found]

    found = Gamma()
    startable.manager.register(Plugin())
    monkeypatch.setenv("STAGEBENCH_PYTHON_GAMMA", sys.executable)
    return found


@pytest.fixture
def run(tmp_path):
    """A run folder in the making."""
    return MadeRun(tmp_path / "run")


@pytest.fixture
def folder(tmp_path):
    """A run folder, begun and empty."""
    return RunFolder(tmp_path / "run").begin(About(plan="test"), "plan")
