"""Real jobs of a real Slurm, two nodes on this machine: they meet, they fail, they are ended, nothing stays behind."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.cluster.dialects import DIALECTS
from stagebench.cluster.mpiexec import Mpiexec
from stagebench.cluster.slurm import launcher as slurm_launcher
from stagebench.cluster.slurm.launcher import PMI as MPI_TYPE
from stagebench.cluster.slurm.launcher import Slurm
from stagebench.cluster.slurm.private import Node, Private, missing
from stagebench.cluster.slurm.script import SETTING
from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.engine_messages import FILE, Begun
from stagebench.suite.errors import Unavailable
from stagebench.suite.worker.messages import Hello, Joined, of_type
from tests.support.errors import raising
from tests.support.memory import small_group
from tests.support.started import CHECKOUT, DEATHS, broke_in_mpi_init, controller, controller_of, running_in, wait_until

HERE = Path(sys.executable)
TWO = Placement(nodes=2, launcher="slurm")
WIRES = {dialect.name: dialect.wire for dialect in DIALECTS}
LIBRARIES = {"openmpi5": ("pmix", "Open MPI v5."), "openmpi4": ("pmix", "Open MPI v4."), "mpich": ("pmi2", "MPICH")}
STUCK = {"pace": 1000.0}  # its first step takes for ever
LEAVES = 120.0  # seconds: srun's second process ends a moment after the job that it belonged to


@pytest.fixture(scope="session")
def own_slurm():
    """A Slurm of the tests' own: two nodes of two cores on this machine."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # not pytest's: sockets want a short path
    slurm = Private(folder)
    slurm.start([Node("n1"), Node("n2")], cores=2)
    yield slurm
    slurm.stop()
    shutil.rmtree(folder)


@pytest.fixture
def slurm(own_slurm, monkeypatch):
    """... which this test's programs speak to."""
    for name, value in own_slurm.environ.items():
        monkeypatch.setenv(name, value)
    return own_slurm


@pytest.fixture(autouse=True)
def nothing_stays(slurm, tmp_path, monkeypatch):
    for setting in (SETTING, MPI_TYPE, slurm_launcher.WAIT):
        monkeypatch.delenv(setting, raising=False)
    yield
    wait_until(lambda: squeue() == [])
    attempt, deadline = tmp_path / "attempt", time.monotonic() + LEAVES
    while running_in(attempt) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [(process.pid, process.cmdline()) for process in running_in(attempt)] == []


@pytest.fixture
def submitted(launched):
    """Runs a request under Slurm, again after a crash of Open MPI's own; the limits leave room for a busy machine."""

    def go(request, silence=240, seconds=300):
        result = launched(Slurm(), request, silence=silence, seconds=seconds)
        if broke_in_mpi_init(request.folder):
            result = launched(Slurm(), request, silence=silence, seconds=seconds)
        return result

    return go


def squeue(form="%i"):
    return subprocess.check_output(["squeue", "--noheader", f"--format={form}"], text=True).split()


AFTER = 120.0  # seconds within which a case has ended once its end is due


@contextmanager
def in_its_midst(folder, act, due=0.0):
    """Do something to the one job when its ranks are at work: all has ended AFTER seconds after it is due."""
    done = []

    def wait():
        deadline, ranks = time.monotonic() + 240, [folder / f"rank-{rank}.jsonl" for rank in (0, 1)]
        while not all(path.exists() and '"native"' in path.read_text() for path in ranks):
            assert time.monotonic() < deadline, squeue("%T")
            time.sleep(0.1)
        act(*squeue())
        done.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()
    assert time.monotonic() - done[0] < due + AFTER


@pytest.mark.parametrize("name", LIBRARIES)
def test_ranks_on_two_nodes_meet_by_the_pmi_of_their_mpi(name, job, submitted, real):
    pmi, library = LIBRARIES[name]
    # One rank a node: Open MPI 4 names its shared memory by host, and here two nodes share one.
    lacks = Slurm().missing(TWO, real(name))
    if lacks is not None and "which this Slurm cannot load" in lacks:
        pytest.skip(lacks)
    request = job(TWO, real(name), environ={"TINY_WORDS": "a b 'c' $d"})
    result = submitted(request)
    assert (result.outcome, result.reason) == ("ok", "")
    text = (request.folder / "job.sbatch").read_text()
    assert f"srun --mpi={pmi} " in text
    ours = {**WIRES[name], "OMPI_MCA_coll_tuned_allreduce_algorithm": "3"}
    for rank in (0, 1):
        (hello,), (joined,) = (of_type(kind, result.messages[rank]) for kind in (Hello, Joined))
        found = {knob: value for knob, value in hello.settings.items() if knob in ours}
        assert found == (ours if name.startswith("open") else {})
        assert (hello.rank, hello.world, joined.rank, joined.world) == (rank, 2, rank, 2)
        assert joined.transport.startswith(f"mpi: {library}")
        assert joined.versions["TINY_WORDS"] == "a b 'c' $d"
        assert int(joined.versions["MASTER_PORT"]) > 1023
    (begun,) = of_type(Begun, result.evidence["engine"])
    assert begun.nodes == "n[1-2]"


@pytest.mark.parametrize("name", LIBRARIES)
def test_within_a_step_ranks_of_mpiexec_meet_on_this_host(name, job, real):
    """As in `srun bash`: by its variables mpiexec would start a second step, which waits for the first one's end."""
    request = job(Placement(ranks_per_node=2, launcher="mpiexec"), real(name))
    (process,) = Mpiexec().processes(request)
    step = ["srun", "--nodes=1", "--ntasks=1", "--mpi=none"]
    step += [sys.executable, "-c", controller(process, 2, request.folder)]
    done = subprocess.run(step, cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["ok"]), done.stdout + done.stderr
    wait_until(lambda: squeue() == [])  # srun's own job leaves its node a moment later


def test_within_a_job_that_has_all_nodes_a_job_of_slurm_s_says_what_to_do(job, monkeypatch):
    monkeypatch.setenv(slurm_launcher.WAIT, "3")
    monkeypatch.setenv("SLURM_JOB_ID", "77")  # as in salloc
    request = job(TWO, HERE, strategy="alone")
    monkeypatch.setenv(SETTING, "--hold")
    (process,) = Slurm().processes(request)
    found = subprocess.run(process.tokens, env={**os.environ, **process.environ}, capture_output=True, check=False)
    assert found.returncode == 1
    assert "stagebench runs in job 77, whose nodes no other job can have" in (request.folder / FILE).read_text()


@pytest.mark.parametrize("options", ["--mem-per-cpu=100", "--exclusive= --mem=", "--oversubscribe"])
def test_a_site_s_options_are_taken_in_place_of_ours(options, job, submitted, monkeypatch):
    monkeypatch.setenv(SETTING, options)
    assert Slurm().missing(TWO, HERE) is None
    assert submitted(job(TWO, HERE, strategy="alone")).outcome == "ok"


@pytest.mark.parametrize("name", ["openmpi5", "mpich"])
def test_the_wrong_pmi_is_an_error_not_a_number(name, job, submitted, monkeypatch, real):
    monkeypatch.setenv(MPI_TYPE, "pmi2" if name.startswith("open") else "none")
    result = submitted(job(TWO, real(name)))
    assert result.outcome == "crash"
    assert "of 2 was asked for, the engine (mpi: " in result.reason
    assert "made rank 0 of 1" in result.reason


def test_a_step_has_all_cores_of_its_nodes_not_its_threads_alone(job, submitted):
    result = submitted(job(TWO, HERE, strategy="alone"))
    assert (result.outcome, result.reason) == ("ok", "")
    assert [of_type(Joined, sent)[0].versions["cores of the step"] for sent in result.messages.values()] == ["2", "2"]


def test_who_has_no_mpi_is_started_without_slurm_s_and_knows_his_number(job, submitted):
    request = job(Placement(nodes=2, ranks_per_node=2, launcher="slurm"), HERE, strategy="alone")
    result = submitted(request)
    assert (result.outcome, result.reason) == ("ok", "")
    assert [result.messages[rank][0].rank for rank in range(4)] == [0, 1, 2, 3]
    assert "srun --mpi=none " in (request.folder / "job.sbatch").read_text()


@DEATHS
def test_the_death_of_one_rank_ends_the_job_and_names_it(knobs, reason, job, submitted, real):
    result = submitted(job(TWO, real("mpich"), knobs=knobs))
    assert result.outcome == "crash", "neither the time limit nor silence had to end it"
    assert result.reason.startswith(reason)


@pytest.mark.out_of_memory
def test_a_rank_that_its_node_s_kernel_ended_for_want_of_memory_is_oom(job, submitted):
    """This Slurm has no memory cgroups: it takes that for any other end."""
    with small_group(120 << 20) as group:
        eats = f"echo $$ >{group}/cgroup.procs && exec {HERE} -c 'x = b\"x\" * (400 << 20)'"
        command = ("sh", "-c", f"test $STAGEBENCH_RANK = 0 && exec sleep 60; {eats}")
        result = submitted(replace(job(TWO, HERE, strategy="alone"), command=command))
    assert (result.outcome, result.evidence["oom_kills"]) == ("oom", 1), result.reason
    assert result.reason.startswith("rank 1 was ended by SIGKILL before its first message")


def test_a_silent_rank_is_a_timeout(job, submitted):
    result = submitted(job(TWO, HERE, strategy="alone", knobs=STUCK), silence=10)
    assert result.outcome == "timeout"
    assert "sent no message for 10 s (silence limit)" in result.reason


def test_a_job_that_somebody_cancels_is_a_crash_in_slurm_s_words(job, submitted):
    request = job(TWO, HERE, strategy="alone", knobs=STUCK)
    with in_its_midst(request.folder, lambda number: subprocess.run(["scancel", number], check=True)):
        result = submitted(request)
    assert result.outcome == "crash"
    assert "on n[1-2] ended as CANCELLED (reason None, exit code " in result.reason


def test_a_job_that_runs_out_of_slurm_s_time_is_a_timeout(job, submitted):
    # Its shortest limit is a minute: the operator makes it end now. Slurm looks every 30 s.
    def now(number):
        subprocess.run(["scontrol", "update", f"JobId={number}", "EndTime=now+5seconds"], check=True)

    request = job(TWO, HERE, strategy="alone", knobs=STUCK)
    with in_its_midst(request.folder, now, due=5 + 30):
        result = submitted(request)
    assert result.outcome == "timeout"
    assert "on n[1-2] ended as TIMEOUT after its 00:" in result.reason
    assert "(reason TimeLimit, " in result.reason


def test_waiting_in_the_queue_does_not_count_until_its_own_limit(slurm, job, submitted, monkeypatch):
    monkeypatch.setenv(slurm_launcher.WAIT, "3")
    monkeypatch.setenv(SETTING, "--hold")
    result = submitted(job(TWO, HERE, strategy="alone"), silence=1)
    assert result.outcome == "timeout"
    assert "was still PENDING after 3 s (reason JobHeldUser) and was cancelled" in result.reason
    assert "STAGEBENCH_SLURM_WAIT gives it more seconds" in result.reason


def test_what_sbatch_refuses_is_unavailable(job, submitted, monkeypatch):
    monkeypatch.setenv(SETTING, "--partition=nix")
    result = submitted(job(TWO, HERE, strategy="alone"))
    assert result.outcome == "unavailable"
    assert "job.sbatch: sbatch: error: invalid partition specified: nix" in result.reason


def test_a_job_does_not_outlive_a_killed_controller(job, tmp_path):
    request = job(TWO, HERE, strategy="alone", knobs=STUCK)
    (process,) = Slurm().processes(request)
    controller = controller_of(process, 2, request.folder)
    with in_its_midst(request.folder, lambda number: controller.kill()):
        controller.wait()
    wait_until(lambda: not squeue() and not running_in(request.folder))


# --- what is missing ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (Placement(nodes=3), "nodes = 3, ranks = 1 of 1 cores each: allocation failure: Requested node configuration"),
        (Placement(ranks_per_node=2, threads=2), "nodes = 1, ranks = 2 of 2 cores each: allocation failure: "),
        (Placement(hosts=("nobody",)), "Invalid node name specified"),
    ],
)
def test_too_few_nodes_or_cores_are_told_with_what_there_is(placement, reason):
    said = Slurm().missing(placement, HERE)
    assert reason in said
    assert "it has the partitions all* (2 nodes of 2 cores, idle). Ask for less, or name another partition" in said


def test_hosts_are_the_nodes(job, submitted):
    result = submitted(job(Placement(hosts=("n2",), launcher="slurm"), HERE, strategy="alone"))
    assert (result.outcome, result.evidence["engine"][0].nodes) == ("ok", "n2")


def test_no_sbatch_and_no_controller_are_told(monkeypatch, slurm, tmp_path):
    conf = (slurm.folder / "slurm.conf").read_text()
    lines = ["SlurmctldPort=1" if line.startswith("SlurmctldPort") else line for line in conf.splitlines()]
    (tmp_path / "slurm.conf").write_text("\n".join(lines))
    with monkeypatch.context() as other:
        other.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        assert Slurm().missing(TWO, HERE).startswith("Slurm's controller does not answer: Slurmctld(primary)")
    with monkeypatch.context() as other:
        other.setenv("PATH", os.path.dirname(HERE))
        assert "this is no host of a Slurm cluster; run stagebench on its login node" in Slurm().missing(TWO, HERE)


# --- sidecars --------------------------------------------------------------------------

SERVER = """
import os, sys, time
print(sys.argv[1], os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"].isdigit(), flush=True)
if sys.argv[1] == "fails":
    sys.exit("no free port")
if sys.argv[1] == "eats":
    raise MemoryError("unable to allocate")
time.sleep(1000)
"""


@pytest.fixture
def accompanied(job, tmp_path):
    (tmp_path / "server.py").write_text(SERVER)

    def make(word, knobs=None):
        request = job(TWO, HERE, strategy="alone", knobs=knobs)
        return replace(request, sidecars=((str(HERE), str(tmp_path / "server.py"), word),))

    return make


def test_a_companion_runs_on_the_first_node_and_ends_with_the_ranks(accompanied, submitted):
    request = accompanied("serves")
    result = submitted(request)
    assert (result.outcome, result.reason) == ("ok", "")
    assert (request.folder / "launcher-1.log").read_text() == "serves 127.0.0.1 True\n"


@pytest.mark.parametrize(
    ("word", "outcome", "last"),
    [("fails", "crash", "fails 127.0.0.1 True|no free port"), ("eats", "oom", "MemoryError: unable to allocate")],
)
def test_a_companion_that_fails_ends_the_job_and_is_named(accompanied, submitted, word, outcome, last):
    result = submitted(accompanied(word, STUCK))
    assert result.outcome == outcome
    assert f"server.py {word} ended with exit code 1; its last lines: " in result.reason
    assert last in result.reason


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_refused_before_jobs_are_lost(tmp_path):
    deep = tmp_path / ("d" * 60)
    with raising(Unavailable, deep, 107):
        Private(deep).start([Node("n1")], cores=1)
    assert not deep.exists()
