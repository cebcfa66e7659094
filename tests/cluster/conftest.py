"""What the launchers' tests share: a real worker of a tiny adapter, and the whole way to start it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stagebench.cluster.lab import build
from stagebench.cluster.lab.build import missing
from stagebench.cluster.lab.network import NETWORK, checked_layout
from stagebench.cluster.lab.state import SETTING, entering, environment
from stagebench.suite.contracts.case import Case
from stagebench.suite.contracts.launcher import Request
from stagebench.suite.processes import bundle
from stagebench.suite.processes.attempt import Limits, run
from stagebench.suite.processes.interpreters import tox_folders
from stagebench.suite.processes.jobs import group, measuring
from stagebench.suite.worker.case_parts import Sampling
from stagebench.suite.worker.job import Job, encode
from stagebench.suite.worker.rendezvous import free_port
from stagebench.workloads.networks import by_name

ENVIRONMENTS = {"openmpi5": "mpi-openmpi5", "openmpi4": "mpi-openmpi4", "mpich": "mpi-mpich"}
QUICK = Sampling(warmup_steps=2, warmup_limit=0.0, steps=5, seconds=0.0, processes=1, quick=True)


def pytest_collection_modifyitems(items):
    """What starts real ranks, or looks for the engines that do, takes seconds."""
    for item in items:
        if {"launched", "real"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


@pytest.fixture
def tiny(monkeypatch):
    """The adapter, imported as a third party's package would be."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield __import__("tinyadapter.plugin", fromlist=["Tiny"]).Tiny()
    for name in [name for name in sys.modules if name.startswith("tinyadapter")]:
        del sys.modules[name]


def python_of(environment, program="python"):
    """The interpreter of the tox environment that has this program; skips when it has not been made."""
    for programs in (folder / environment / "bin" for folder in tox_folders()):
        if (programs / program).exists():
            return programs / "python"
    pytest.skip(f"no environment {environment} (tox run -e {environment} makes it; STAGEBENCH_TOX_DIR says where)")


@pytest.fixture(scope="session")
def real():
    """The interpreter of the tox environment for a dialect."""
    return lambda name: python_of(ENVIRONMENTS[name], "mpiexec")


@pytest.fixture(params=list(ENVIRONMENTS))
def interpreter(request, real):
    """The interpreter of every MPI, one after the other."""
    return real(request.param)


@pytest.fixture
def job(tiny, tmp_path):
    """Writes bundle and job; gives the request for a launcher."""

    def make(placement, interpreter, strategy="mpi", knobs=None, environ=None):
        case = Case(
            "tiny", strategy, "small", placement, knobs=knobs or {}, passes=("native",), sampling=QUICK, batch=2
        )
        attempt = tmp_path / "attempt"
        attempt.mkdir(exist_ok=True)
        task = measuring(case, 0, by_name()["mnist_small"], None)
        (attempt / "job.json").write_text(encode(Job(str(attempt), group(case, tiny), task)))
        code = bundle.write(tiny, tmp_path / "bundles" / "tiny")
        command, variables = bundle.command(interpreter, code, attempt / "job.json", placement.threads)
        return Request(placement, command, interpreter, {**variables, **(environ or {})}, attempt, free_port())

    return make


@pytest.fixture
def launched():
    """Starts a request with a launcher, to its end; silence counts when its ranks have joined."""

    def go(launcher, request, processes=None, silence=60, on_message=lambda rank, message: None, seconds=300):
        limits = Limits(total_s=seconds, silence_s=silence, joining_s=seconds)
        processes = launcher.processes(request) if processes is None else processes
        return run(processes, request.placement.ranks, request.folder, limits, on_message)

    return go


@pytest.fixture(scope="session")
def laboratory(request):
    """Two hosts at 1 Gbit/s, or as many as a test's parameter is, of this test run alone."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    # Not in pytest's folder: a Slurm in it has sockets, which want a short path.
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, folder)
        state = build.up(checked_layout(f"test-{os.getpid()}-lab", getattr(request, "param", 2), NETWORK), "1gbit")
        yield state
        build.down(state)


@pytest.fixture(scope="session")
def head_node(laboratory, tmp_path_factory):
    """Gives tokens and variables of a command in the first host, with the tiny adapter installed as a third party's."""
    about = tmp_path_factory.mktemp("site") / "tiny-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[stagebench]\nadapter-tiny = tinyadapter.plugin\n")
    path = os.pathsep.join(map(str, (about.parent, Path(__file__).parent, *sys.path[1:])))

    def command(*words):
        # Asked for anew: a Slurm that was started since is in the environment, too.
        variables = {**environment(laboratory), "PYTHONPATH": path}
        return entering(laboratory, laboratory.layout.hosts[0], list(words)), variables

    return command


@pytest.fixture
def stagebench(head_node, tmp_path):
    """Runs the command line in the first host, in the test's folder, with these variables besides."""

    def run(*words, **variables):
        tokens, own = head_node(sys.executable, "-m", "stagebench.suite.cli", *words)
        environ = {**own, **variables}
        return subprocess.run(
            tokens, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
        )

    return run


@pytest.fixture
def environment_of():
    """The interpreter of an adapter's environment; skips when it has not been made."""
    return python_of


@pytest.fixture
def pytorch(environment_of):
    """The interpreter of PyTorch's environment."""
    return environment_of("pytorch")
