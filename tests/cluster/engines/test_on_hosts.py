"""The whole of `stagebench run` over a Spark and a Ray on two hosts of a laboratory, one of which may be lost."""

import re
import subprocess
import sys
from functools import partial

import psutil
import pytest

from stagebench.cluster.lab.build import processes
from stagebench.cluster.lab.network import switch_link
from stagebench.cluster.lab.state import entering
from stagebench.suite.results.run_folder import RunFolder
from stagebench.workloads.networks.mnist import mnist_small
from tests.cluster.engines.clusters import Node
from tests.cluster.engines.conftest import ENGINES
from tests.support import plans
from tests.support.started import wait_until


def plan(hosts, adapter="pytorch", strategy="ddp", **sampling):
    limits = {"silence_limit": 60, "time_limit": 120}
    case = {"adapter": adapter, "strategy": strategy, "nodes": 2, "hosts": list(hosts), "batch": 2, **limits}
    return plans.brief(case, sampling=sampling)


@pytest.fixture
def variables(engine, laboratory, tmp_path_factory):
    """Of the engine's cluster, a node on each host."""
    layout = laboratory.layout
    nodes = [Node(layout.address(host), tuple(entering(laboratory, host, []))) for host in layout.hosts]
    with ENGINES[engine][2](tmp_path_factory.mktemp(f"{engine}-on-hosts"), nodes) as found:
        yield found


def left_in(folder, hosts):
    """What still stands in an attempt's folder."""
    found = []
    for host in hosts:
        for process in processes(host):
            try:
                found += [process.name()] if process.cwd().startswith(str(folder)) else []
            except psutil.Error:  # it has gone
                continue
    return found


@pytest.mark.parametrize(("adapter", "strategy"), [("pytorch", "ddp"), ("horovod-mxnet", "allreduce")])
def test_training_runs_on_the_named_hosts_in_their_order_and_over_the_wire(
    engine, variables, laboratory, stagebench, environment_of, tmp_path, adapter, strategy
):
    hosts = laboratory.layout.hosts[::-1]
    (tmp_path / "plan.toml").write_text(plan(hosts, adapter, strategy))
    python = environment_of(adapter)
    options = ("--launcher", engine, "--python", f"{adapter}={python}", "--no-proofs", "-o", "run", "--json")
    done = stagebench("run", "plan.toml", *options, **variables)
    (record,) = RunFolder.open(tmp_path / "run").records()
    assert (record.outcome, record.reason, done.returncode) == ("ok", "", 0), done.stderr
    assert [rank.hello.host for rank in record.ranks] == list(hosts)
    exchanged = 7 * mnist_small().gradient_bytes() / 2
    assert all(rank.wire["eth0"].sent_bytes > exchanged for rank in record.ranks)
    assert left_in(tmp_path, hosts) == []


def kill_daemon(host):
    """The engine's own daemon on a host."""
    for process in processes(host):
        if re.search(r"deploy\.worker\.Worker|raylet/raylet", " ".join(process.cmdline())):
            process.kill()


@pytest.mark.parametrize(
    ("lose", "how"),
    [
        (partial(switch_link, on=False), "no sign of life for 20 s"),
        (kill_daemon, ".*"),
    ],
    ids=["link cut", "daemon killed"],
)
def test_a_node_that_is_lost_ends_the_case_in_time_and_nothing_is_left(
    engine, variables, laboratory, head_node, pytorch, tmp_path, lose, how
):
    hosts = laboratory.layout.hosts
    (tmp_path / "plan.toml").write_text(plan(hosts, seconds=600.0))
    options = ("--launcher", engine, "--python", f"pytorch={pytorch}", "--no-proofs", "-o", "run", "--json")
    tokens, own = head_node(sys.executable, "-m", "stagebench.suite.cli", "run", "plan.toml", *options)
    with subprocess.Popen(tokens, env={**own, **variables}, cwd=tmp_path, stdout=subprocess.DEVNULL) as command:
        try:
            wait_until(lambda: any('"progress"' in log.read_text() for log in tmp_path.rglob("rank-1.jsonl")), 180)
            lose(hosts[1])
            assert command.wait(90) == 1
            wait_until(lambda: left_in(tmp_path, hosts) == [], 60)
        finally:
            command.kill()
            switch_link(hosts[1], on=True)
    (record,) = RunFolder.open(tmp_path / "run").records()
    lost = re.escape(f"the host {hosts[1]} ({laboratory.layout.address(hosts[1])}) was lost: ")
    remedy = f"; bring it back, with {engine.capitalize()} on it \\(`.*`\\), or name other hosts"
    assert record.outcome == "crash"
    assert re.match(lost + how + remedy, record.reason), record.reason
