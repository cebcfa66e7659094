"""The whole of `stagebench run --launcher slurm`, given in a laboratory's host as on a cluster's login node."""

import json
import re
import subprocess
import threading
import time

import pytest

from cluster.lab.build import processes
from cluster.lab.state import entering
from cluster.slurm.private import Node, missing
from suite.results.run_folder import RunFolder
from suite.worker.job import decode
from tests.support import plans

PLAN = plans.brief(
    {"batch": 2, "knobs": {"dies": 1, "signal": "SIGKILL"}},
    {"batch": 3, "knobs": {"pace": 20.0}},
    {"batch": 4, "ranks": 2},
    adapter="tiny",
    strategy="mpi",
    nodes=2,
    time_limit=60,
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
            begun = job.with_name("rank-1.jsonl")
            if (
                decode(job.read_text(), str(job)).group.setup.batch == 3
                and begun.exists()
                and "native" in begun.read_text()
            ):
                told(login_node, "scancel", "--me")
                return
        time.sleep(0.2)


def left_of(hosts):
    """Names of the hosts' processes; Slurm's own step daemon leaves a moment after its job has."""
    deadline = time.monotonic() + 10
    while True:
        names = {process.name() for host in hosts for process in processes(host)}
        if "slurmstepd" not in names or time.monotonic() > deadline:
            return sorted(names)
        time.sleep(0.1)


@pytest.mark.parametrize("mpi", ["openmpi5", "mpich"])
def test_a_plan_goes_on_after_a_killed_rank_and_a_cancelled_job(
    mpi, laboratory, login_node, stagebench, real, tmp_path
):
    (tmp_path / "plan.toml").write_text(PLAN)
    options = ("--launcher", "slurm", "--python", f"tiny={real(mpi)}", "--no-proofs", "-o", "run", "--json")
    operator = threading.Thread(target=cancel_the_case_of_batch_3, args=(login_node, tmp_path / "run" / "attempts"))
    operator.start()
    done = stagebench("run", "plan.toml", *options)
    operator.join()
    assert done.stdout, done.stderr
    assert (done.returncode, json.loads(done.stdout)["outcomes"]) == (1, {"crash": 2, "ok": 1})
    killed, cancelled, good = sorted(RunFolder.open(tmp_path / "run").records(), key=lambda it: it.case.batch)
    first, second = hosts = laboratory.layout.hosts
    assert re.match(f"({ALONE}|{UNSURE}) in native", killed.reason), killed.reason
    assert f"on {laboratory.layout.name}[1-2] ended as CANCELLED" in cancelled.reason
    assert [rank.hello.host for rank in good.ranks] == [first, first, second, second]
    assert told(login_node, "squeue", "--noheader") == ""
    assert left_of(hosts) == ["slurmctld", "slurmd", "slurmscriptd"]
