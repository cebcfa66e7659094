"""Ranks forked from a process that has imported their framework end, and are ended, as those started afresh."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from stagebench_conformance import warm_rank
from stagebench_conformance.warm import Servers, modules

import stagebench
from stagebench.suite.contracts.launcher import Process
from stagebench.suite.plugins import adapters

MAIN = """
import numpy
from stagebench.suite.worker import counted

def main(arguments):
    found = {}
    exec(open(arguments[0]).read(), found)
    return found.get("code", 0)
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts a rank whose job is a Python program, from a small bundle."""
    bundle, servers, ranks = tmp_path / "bundle", Servers(tmp_path / "servers"), []
    worker = bundle / "suite" / "worker"
    worker.mkdir(parents=True)
    servers.folder.mkdir()
    (bundle / "bundle.json").write_text(json.dumps({"digest": "d", "adapter": "nobody", "package": "framework"}))
    (bundle / "__main__.py").write_text(
        "import sys; from stagebench.suite.worker.main import main; sys.exit(main(sys.argv[1:]))"
    )
    shutil.copy(stagebench.__file__, bundle)
    (bundle / "suite" / "__init__.py").touch()
    (worker / "__init__.py").touch()
    (worker / "main.py").write_text(MAIN)
    (worker / "counted.py").write_text(f"open({str(tmp_path / 'imports')!r}, 'a').write('x')")

    def started(program, framework="", **variables):
        (bundle / "framework.py").write_text(framework)
        job = tmp_path / f"job-{len(list(tmp_path.iterdir()))}.py"
        job.write_text(program)
        rank = Process((sys.executable, "-B", "-u", str(bundle), str(job)), {"STAGEBENCH_RANK": "1", **variables}, 1)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        ranks.append(subprocess.Popen(servers.tokens(rank), env={**os.environ, **rank.environ}, cwd=tmp_path, **pipes))
        return ranks[-1]

    yield started
    for rank in ranks:
        rank.kill()
        rank.communicate()
    servers.close()


def test_a_rank_has_its_own_variables_folder_and_output_and_the_import_is_shared(start, tmp_path):
    program = "import os; print(os.environ['STAGEBENCH_RANK'], os.environ['MASTER_PORT'], os.getcwd()); code = 3"
    ranks = [start(program, MASTER_PORT=str(port)) for port in (1, 2)]
    assert [rank.communicate(timeout=300)[0] for rank in ranks] == [f"1 {port} {tmp_path}\n" for port in (1, 2)]
    assert [rank.returncode for rank in ranks] == [3, 3]
    assert (tmp_path / "imports").read_text() == "x"


def test_ranks_of_several_tests_share_an_import(start, tmp_path):
    for test in ("one", "two"):
        assert start("", PYTEST_CURRENT_TEST=test).wait(timeout=300) == 0
    assert (tmp_path / "imports").read_text() == "x"


def test_the_trainers_are_imported_beforehand_but_those_that_join_an_mpi():
    about = {"adapter": "caffempi", "package": "stagebench.adapters.caffempi"}
    trainers = [f"stagebench.adapters.caffempi.{name}" for name in ("base", "inference")]
    assert modules(about) == [*adapters()["caffempi"].requires, *trainers]


def test_an_engine_and_a_sidecar_get_a_stand_in_and_other_programs_stay(tmp_path):
    bundle, servers = tmp_path / "bundle", Servers(tmp_path / "servers")
    for folder in (bundle, servers.folder):
        folder.mkdir()
    (bundle / "bundle.json").write_text(json.dumps({"digest": "d", "adapter": "nobody", "package": "json"}))
    for program in (str(bundle), str(bundle / "adapters" / "server.py")):
        tokens = servers.tokens(Process(("mpiexec", "-n", "2", sys.executable, "-B", "-u", program, "job")))
        assert tokens[:3] == ("mpiexec", "-n", "2")
        assert tokens[6] == warm_rank.__file__
        assert tokens[-5:] == (sys.executable, "-B", "-u", program, "job")
    servers.close()
    assert servers.tokens(Process(("mpiexec", "hostname"))) == ("mpiexec", "hostname")


def test_another_variable_that_a_framework_may_read_is_another_import(start, tmp_path):
    for threads in ("1", "2"):
        assert start("", OMP_NUM_THREADS=threads).wait(timeout=300) == 0
    assert (tmp_path / "imports").read_text() == "xx"


def test_a_rank_that_a_signal_ends_is_told_so(start):
    assert start("import os, signal; os.kill(os.getpid(), signal.SIGABRT)").wait(timeout=300) == -signal.SIGABRT


def test_whoever_is_killed_takes_the_rank_along(start):
    rank = start("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    forked = int(rank.stdout.readline())
    assert forked != rank.pid
    rank.kill()
    deadline = time.monotonic() + 120
    while os.path.exists(f"/proc/{forked}"):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


def test_where_the_framework_cannot_be_imported_the_worker_starts_by_itself(start, tmp_path):
    rank = start("print('as ever')", framework="raise ImportError('libdriver.so.9')")
    assert rank.communicate(timeout=300)[0] == "as ever\n"
