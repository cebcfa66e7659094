"""The whole of `stagebench run`, given in a host of the laboratory as on a cluster's head node."""

import json
import re
import subprocess
import sys

import pytest

from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.network import switch_link
from stagebench.cluster.logins import AGENT
from stagebench.suite.results.records import COMM
from stagebench.suite.results.run_folder import RunFolder
from stagebench.suite.worker.messages import ExchangeTimes
from stagebench.workloads.networks.mnist import mnist_small
from tests.support import plans
from tests.support.started import wait_until

TINY = {"adapter": "tiny", "strategy": "mpi", "launcher": "mpiexec", "nodes": 2, "time_limit": 120}
KILLED, QUIET = {"batch": 2, "knobs": {"dies": 1, "signal": "SIGKILL"}}, {"batch": 6, "knobs": {"quiet": True}}
PLAN = plans.brief(KILLED, {"batch": 4, "ranks": [1, 2]}, QUIET, **TINY)


def batch(record):
    return record.case.batch


def test_a_plan_goes_on_after_a_killed_rank_and_tells_who_kept_off_the_wire(
    laboratory, interpreter, stagebench, tmp_path
):
    hosts = laboratory.layout.hosts
    (tmp_path / "plan.toml").write_text(PLAN)
    options = ("--hosts", ",".join(hosts), "--python", f"tiny={interpreter}", "--no-proofs", "-o", "run", "--json")
    done = stagebench("run", "plan.toml", *options)
    assert done.stdout, done.stderr
    assert done.returncode == 1
    assert json.loads(done.stdout)["outcomes"] == {"crash": 2, "ok": 2}
    records = list(RunFolder.open(tmp_path / "run").records())
    for record in records:
        per_node = record.case.placement.ranks_per_node
        assert [rank.hello.host for rank in record.ranks] == [host for host in hosts for _ in range(per_node)]
    killed, quiet = (one.reason for one in sorted(records, key=batch) if one.outcome == "crash")
    assert killed.startswith("rank 1 ")
    assert "the busiest interface of " in quiet
    assert "they did not take the wire" in quiet
    exchanged = 7 * mnist_small().gradient_bytes()
    for record in (record for record in records if record.outcome == "ok"):
        assert all(rank.wire["eth0"].sent_bytes > exchanged for rank in record.ranks)
    wait_until(lambda: not any(processes(host) for host in hosts))


@pytest.mark.parametrize("shared", [False, True], ids=["own memory", "shared memory"])
def test_communication_that_kept_off_the_wire_is_no_number(laboratory, real, head_node, shared, tmp_path):
    """Hosts without IPC namespaces of their own: MPICH sees shared memory and takes it."""
    real("mpich")
    agent = re.sub(r"--ipc=\S+" if shared else "$^", "", laboratory.agent.read_text())
    (tmp_path / "agent").write_text(agent)
    (tmp_path / "agent").chmod(0o755)
    words = ("comm", "--backend", "mpi4py-mpich", "--op", "all-reduce", "--sizes", "4K:1M", "--seconds", "0.05")
    options = ("--hosts", ",".join(laboratory.layout.hosts), "-o", "run", "--json")
    tokens, variables = head_node(sys.executable, "-m", "stagebench.suite.cli", *words, *options)
    if shared:
        tokens = [token for token in tokens if not token.startswith("--ipc=")]
    variables = {**variables, AGENT: str(tmp_path / "agent")}
    done = subprocess.run(tokens, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    (link,) = json.loads(done.stdout)["links"]
    assert link["outcome"] == ("crash" if shared else "ok"), link["reason"]
    assert ("messages of " in link["reason"] and "did not take the wire" in link["reason"]) == shared
    (record,) = RunFolder.open(tmp_path / "run", COMM).records()
    moved = sum(row.bytes * len(row.sample_s) for row in record.ranks[0].exchanges if isinstance(row, ExchangeTimes))
    assert all((rank.wire["eth0"].sent_bytes > moved / 2) == (not shared) for rank in record.ranks)


CUT = {"adapter": "pytorch", "strategy": "ddp", "launcher": "ssh", "nodes": 2, "silence_limit": 15}


def test_a_link_cut_under_gloo_is_a_case_that_ends_in_time_and_the_next_goes_on(
    laboratory, pytorch, head_node, tmp_path
):
    hosts = laboratory.layout.hosts
    (tmp_path / "plan.toml").write_text(plans.brief({"batch": [2, 4]}, sampling={"seconds": 3.0}, **CUT))
    options = ("--hosts", ",".join(hosts), "--python", f"pytorch={pytorch}", "--no-proofs", "-o", "run", "--json")
    tokens, variables = head_node(sys.executable, "-m", "stagebench.suite.cli", "run", "plan.toml", *options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def in_step():
        assert command.poll() is None, command.stdout.read() + command.stderr.read()
        return any('"progress"' in path.read_text() for path in (tmp_path / "run").rglob("rank-1.jsonl"))

    with subprocess.Popen(tokens, env=variables, cwd=tmp_path, **pipes) as command:
        try:
            wait_until(in_step, 180)
            switch_link(hosts[1], on=False)
            wait_until(lambda: list((tmp_path / "run" / "records").glob("*.json")), 180)
            switch_link(hosts[1], on=True)
            out, err = command.communicate(timeout=180)
        finally:
            switch_link(hosts[1], on=True)
            command.kill()
    assert out, err
    cut, good = sorted(RunFolder.open(tmp_path / "run").records(), key=batch)
    assert cut.outcome in ("crash", "timeout")
    assert "native (" in cut.reason
    assert good.outcome == "ok", good.reason
    wait_until(lambda: not any(processes(host) for host in hosts))
