"""Every real MPI that this machine has an environment for: ranks that meet, that die, that a stranger started."""

import os
import shutil
import subprocess
import tempfile

import psutil
import pytest

from stagebench.cluster import dialects
from stagebench.cluster.dialects import DIALECTS
from stagebench.cluster.mpiexec import Mpiexec, arguments
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Process, Request
from stagebench.suite.worker.messages import Hello, Joined, of_type
from tests.support.started import DEATHS, controller_of, running_in, wait_until

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
TWO = Placement(ranks_per_node=2)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, empty."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_real_ranks_meet_and_get_their_variables(interpreter, job, launched, temporary):
    request = job(Placement(ranks_per_node=3, threads=2), interpreter, environ={"TINY_WORDS": "a b 'c' $d"})
    result = launched(Mpiexec(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    assert not list(temporary.glob("stagebench-*"))
    for rank in range(3):
        (joined,) = of_type(Joined, result.messages[rank])
        assert (joined.rank, joined.world) == (rank, 3)
        assert joined.versions["TINY_WORDS"] == "a b 'c' $d"
        assert joined.versions["OMP_NUM_THREADS"] == "2"
        assert joined.versions["MASTER_PORT"] == str(request.port)
        (hello,) = of_type(Hello, result.messages[rank])
        assert hello.cores == sorted(os.sched_getaffinity(0))  # nobody pinned it


@DEATHS
def test_the_death_of_one_real_rank_ends_the_group_and_names_it(interpreter, job, launched, knobs, reason):
    result = launched(Mpiexec(), job(TWO, interpreter, knobs=knobs))
    assert result.outcome == "crash", "neither the time limit nor silence had to end it"
    assert result.reason.startswith(reason)


def test_a_frozen_real_rank_is_a_timeout_and_nothing_is_left(interpreter, job, launched):
    request = job(TWO, interpreter, knobs={"dies": 1, "signal": "SIGSTOP"})
    result = launched(Mpiexec(), request, silence=5)
    assert result.outcome == "timeout"
    assert "sent no message for 5 s (silence limit) in native" in result.reason
    assert running_in(request.folder) == []


def test_real_ranks_do_not_outlive_a_killed_controller(interpreter, job, tmp_path):
    request = job(TWO, interpreter, knobs={"dies": 1, "signal": "SIGSTOP"})  # they would stay for ever
    (process,) = Mpiexec().processes(request)
    controller = controller_of(process, 2, request.folder)
    wait_until(lambda: running_in(request.folder, psutil.STATUS_STOPPED))
    controller.kill()
    controller.wait()
    wait_until(lambda: running_in(request.folder) == [])


@pytest.fixture
def killed_and_again(tmp_path, temporary):
    """A killed mpiexec, then another one of the same process number; what that prints. Each has its own namespace."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("wants root, and unshare from util-linux")

    def go(interpreter, scratch=True):
        def started(*command):
            (process,) = Mpiexec().processes(Request(TWO, command, interpreter, {}, tmp_path))
            environ = {**os.environ, **process.environ}
            if not scratch:
                del environ["PRTE_MCA_prte_local_tmpdir_base"]
            alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
            return subprocess.Popen(
                (*alone, *process.tokens), env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

        first = started("sh", "-c", "echo here; exec sleep 600")
        assert first.stdout.readline() == "here\n"
        first.kill()
        first.communicate()
        return started("echo", "hello").communicate(timeout=300)[0]

    return go


def test_a_killed_mpiexec_does_not_keep_the_next_one_of_its_number_from_starting(interpreter, killed_and_again):
    assert killed_and_again(interpreter) == "hello\n" * 2


def test_open_mpi_5_without_a_folder_of_its_own_cannot_start_again(real, killed_and_again):
    assert "listener thread failed to start" in killed_and_again(real("openmpi5"), scratch=False)


# (mpiexec, library): as tried with the real ones
STRANGERS = [("mpich", "openmpi5"), ("openmpi5", "openmpi4"), ("openmpi4", "mpich"), ("openmpi5", "mpich")]
PAIRS = [("openmpi5", "openmpi5"), ("openmpi4", "openmpi5")]


@pytest.fixture
def pair(request, real, tmp_path):
    """(another environment's mpiexec, the interpreter of an environment that has none)."""
    mpiexec, library = request.param
    source = real(library).parent.parent
    target = tmp_path / "lonely"
    (target / "bin").mkdir(parents=True)
    for name in ("lib", "bin/python"):
        (target / name).symlink_to(source / name)
    shutil.copy(source / "pyvenv.cfg", target)
    return real(mpiexec).with_name("mpiexec"), target / "bin" / "python", BY_NAME[mpiexec]


@pytest.mark.parametrize("pair", STRANGERS, indirect=True, ids="-".join)
def test_an_mpiexec_that_cannot_start_the_library_is_refused_before_anything_starts(pair, monkeypatch):
    mpiexec, interpreter, dialect = pair
    monkeypatch.setenv(dialects.SETTING, str(mpiexec))
    reason = Mpiexec().missing(TWO, interpreter)
    assert f"STAGEBENCH_MPIEXEC is {mpiexec} ({dialect.title}), but {interpreter} uses " in reason
    assert "beside the interpreter, or name it with STAGEBENCH_MPIEXEC" in reason


@pytest.mark.parametrize("pair", PAIRS, indirect=True, ids="-".join)
def test_an_mpiexec_from_elsewhere_that_fits_is_taken(pair, job, launched, monkeypatch):
    mpiexec, interpreter, _ = pair
    monkeypatch.setenv(dialects.SETTING, str(mpiexec))
    assert Mpiexec().missing(TWO, interpreter) is None
    assert launched(Mpiexec(), job(TWO, interpreter)).outcome == "ok"


@pytest.mark.parametrize("pair", STRANGERS, indirect=True, ids="-".join)
def test_ranks_that_a_stranger_started_are_never_ok(pair, job, launched, request):
    mpiexec, interpreter, dialect = pair
    asked = job(TWO, interpreter)
    tokens = [str(mpiexec), *arguments(dialect, TWO, asked.environ), *asked.command]
    result = launched(Mpiexec(), asked, [Process(tuple(tokens), {**asked.environ, **dialect.environ})])
    assert result.outcome == "crash"
    if request.node.callspec.id == "mpich-openmpi5":  # the classical trap: singletons; others do not start at all
        assert "of 2 was asked for, the engine (mpi: Open MPI v5.0.11" in result.reason
        assert "made rank 0 of 1; the MPI library and the launcher probably come from different" in result.reason
