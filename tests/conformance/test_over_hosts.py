"""Every way of meeting over several hosts, for real: two hosts of a laboratory, `stagebench run` on the first.

What is joined within a host before it crosses the wire is proven here; the rest is proven by test_adapters.py
on one host, and with STAGEBENCH_EVERY_PAIR=1 (`tox run -e verify`) here, too.

Skipped where no laboratory can be built, or where a framework is not there; the latter fails for the adapters that
STAGEBENCH_NEED names.
"""

import os
import subprocess
import sys

import pytest

from cluster.lab import build
from cluster.lab.agent import entering, environment
from cluster.lab.layout import NETWORK, checked_layout
from cluster.lab.links import wire
from cluster.lab.rights import missing
from cluster.lab.state import SETTING
from suite.environments.find import find
from suite.errors import Unavailable
from suite.plugins import adapters
from suite.results.run_folder import RunFolder

NEEDED = {name.strip() for name in os.environ.get("STAGEBENCH_NEED", "").split(",") if name.strip()}
EVERY_PAIR = os.environ.get("STAGEBENCH_EVERY_PAIR") == "1"
WAYS = [
    ("pytorch", "ddp", "ssh", "gloo"),
    ("pytorch", "parameter_server", "ssh", "tensorpipe"),
    ("tensorflow", "multiworker_mirrored", "ssh", "ring over grpc"),
    ("tensorflow", "parameter_server", "ssh", "grpc"),
    ("mxnet", "dist_sync", "ssh", "ps-lite"),
    ("mxnet", "dist_async", "ssh", "ps-lite"),
    ("mxnet", "dist_device_sync", "ssh", "ps-lite"),
    ("cntk", "data_parallel", "mpiexec", "mpi: Open MPI v"),
    ("caffempi", "two_level", "mpiexec", "mpi: Open MPI v"),
    ("caffempi", "data_parallel", "mpiexec", "mpi: Open MPI v"),
    ("horovod-mxnet", "allreduce", "ssh", "gloo"),
    ("horovod-mxnet", "allreduce", "mpiexec", "mpi: Open MPI v"),
]
# Those with something to do within a host, too: two of what is joined there. Only here are they proven with both.
WITHIN = {"two_level": "ranks = 2", "dist_device_sync": "devices = 2"}
PLAN = """
name = "over-hosts"
[sampling]
quick = true
steps = 5
warmup_steps = 2
warmup_limit = 1.0
seconds = 0.0
processes = 1
[[cases]]
adapter = "{}"
strategy = "{}"
launcher = "{}"
workload = "mnist_small"
nodes = 2
passes = ["native"]
{}
"""


pytestmark = pytest.mark.xdist_group("laboratory")


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    """Two hosts at 1 Gbit/s, of this test run alone."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, str(tmp_path_factory.mktemp("laboratories")))
        state = build.up(checked_layout(f"test-{os.getpid()}-over", 2, NETWORK), "1gbit")
        yield state
        build.down(state)


@pytest.mark.parametrize(("name", "strategy", "launcher", "transport"), WAYS, ids=["-".join(way[:3]) for way in WAYS])
def test_ranks_on_two_hosts_are_measured(laboratory, tmp_path, name, strategy, launcher, transport):
    absent = pytest.fail if name in NEEDED else pytest.skip
    try:
        find(adapters()[name])
    except Unavailable as error:
        absent(str(error))
    plan, run, hosts = tmp_path / "plan.toml", tmp_path / "run", laboratory.layout.hosts
    plan.write_text(PLAN.format(name, strategy, launcher, WITHIN.get(strategy, "")))
    before = [wire(host) for host in hosts]
    tokens = [sys.executable, "-m", "suite.cli", "run", str(plan), "--hosts", ",".join(hosts), "-o", str(run)]
    proven = EVERY_PAIR or strategy in WITHIN
    tokens += [] if proven else ["--no-proofs"]
    done = subprocess.run(
        entering(laboratory, hosts[0], tokens), env=environment(laboratory), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder.open(run)
    (record,) = folder.records()
    if record.outcome == "unavailable":  # such as CNTK's with the mpiexec of another MPI first on PATH
        absent(record.reason)
    assert (record.outcome, record.reason) == ("ok", "")
    placement = record.case.placement
    assert [rank.hello.host for rank in record.ranks] == [
        host for host in hosts for _ in range(placement.ranks_per_node)
    ]
    assert placement.ranks_per_node * placement.devices == (2 if strategy in WITHIN else 1)
    assert all(rank.joined.transport.startswith(transport) for rank in record.ranks)
    proofs = folder.proofs().values()
    assert [proof.reason for proof in proofs if not proof.passed] == []
    assert len(proofs) == proven
    # Every step brings the gradients of every parameter.
    gradients = 4 * 402_442
    assert all(wire(host).received - was.received > 5 * gradients for host, was in zip(hosts, before, strict=True))
