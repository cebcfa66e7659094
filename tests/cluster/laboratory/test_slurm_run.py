"""The whole of `stagebench run --launcher slurm`, given in a laboratory's host as on a cluster's login node."""

import json
import re
import subprocess
import threading
import time
from contextlib import suppress

import psutil
import pytest

from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.state import entering
from stagebench.cluster.slurm.private import Node, missing
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.job import decode
from tests.support import plans
from tests.support.started import broke_in_mpi_init

PLAN = plans.brief(
    {"batch": 2, "knobs": {"dies": 1, "signal": "SIGKILL"}},
    {"batch": 3, "knobs": {"pace": 20.0}},
    {"batch": 4, "ranks": 2},
    adapter="tiny",
    strategy="mpi",
    nodes=2,
    time_limit=120,
)

# Open MPI's abort lets Slurm kill the other rank, too, and srun may hear of either first; then the record says so.
ALONE = "rank 1 was ended by SIGKILL"
UNSURE = r"rank [01] was ended by SIGKILL \(so was rank [01], and who was first is not known\)"


@pytest.fixture(scope="module")
def login_node(laboratory, head_node):
    """The first host, with a Slurm over both."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    layout = laboratory.layout
    nodes = [Node(host, layout.address(host), tuple(entering(laboratory, host, []))) for host in layout.hosts]
    laboratory.slurm.start(nodes, cores=2)
    yield head_node
    laboratory.slurm.stop()


def told(login_node, *words):
    tokens, variables = login_node(*words)
    return subprocess.check_output(tokens, env=variables, text=True)


def cancel_the_case_of_batch_3(login_node, attempts):
    """When its job runs."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for job in attempts.glob("*/job.json"):
            begun = job.with_name("rank-1.jsonl")  # once it is there the job has been written, too
            if (
                begun.exists()
                and "native" in begun.read_text()
                and decode(job.read_text(), str(job)).group.setup.batch == 3
            ):
                told(login_node, "scancel", "--me")
                return
        time.sleep(0.2)


def left_of(hosts):
    """Names of the hosts' processes; Slurm's own step daemon leaves a moment after its job has."""
    deadline = time.monotonic() + 120
    while True:
        names = set()
        for process in (each for host in hosts for each in processes(host)):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                names.add(process.name())
        if "slurmstepd" not in names or time.monotonic() > deadline:
            return sorted(names)
        time.sleep(0.1)


@pytest.mark.parametrize("mpi", ["openmpi5", "mpich"])
def test_a_plan_goes_on_after_a_killed_rank_and_a_cancelled_job(
    mpi, laboratory, login_node, stagebench, real, tmp_path
):
    (tmp_path / "plan.toml").write_text(PLAN)
    options = ("--launcher", "slurm", "--python", f"tiny={real(mpi)}", "--no-proofs", "--json")
    for name in ("run", "again"):  # once more after a crash of Open MPI's own
        attempts = tmp_path / name / "attempts"
        operator = threading.Thread(target=cancel_the_case_of_batch_3, args=(login_node, attempts))
        operator.start()
        done = stagebench("run", "plan.toml", *options, "-o", name)
        operator.join()
        if not any(map(broke_in_mpi_init, attempts.iterdir())):
            break
    assert done.stdout, done.stderr
    assert (done.returncode, json.loads(done.stdout)["outcomes"]) == (1, {"crash": 2, "ok": 1})
    killed, cancelled, good = sorted(RunFolder.open(tmp_path / name).records(), key=lambda it: it.case.batch)
    first, second = hosts = laboratory.layout.hosts
    assert re.match(f"({ALONE}|{UNSURE}) in native", killed.reason), killed.reason
    assert f"on {laboratory.layout.name}[1-2] ended as CANCELLED" in cancelled.reason
    assert [rank.hello.host for rank in good.ranks] == [first, first, second, second]
    assert told(login_node, "squeue", "--noheader") == ""
    assert left_of(hosts) == ["slurmctld", "slurmd", "slurmscriptd"]
