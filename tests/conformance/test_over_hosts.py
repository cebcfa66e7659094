"""Every way of meeting over several hosts, for real: two hosts of a laboratory, `stagebench run` on the first.

What is joined within a host before it crosses the wire is proven here; the rest is proven by test_adapters.py
on one host, and with STAGEBENCH_EVERY_PAIR=1 (`tox run -e verify`) here, too, with more strategies.

Skipped where no laboratory can be built, or where a framework is not there; the latter fails for the adapters that
STAGEBENCH_NEED names.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from stagebench.cluster.lab import build
from stagebench.cluster.lab.build import missing
from stagebench.cluster.lab.network import NETWORK, checked_layout, wire
from stagebench.cluster.lab.state import SETTING, entering, environment
from stagebench.suite.errors import Unavailable
from stagebench.suite.plugins import adapters
from stagebench.suite.processes.interpreters import find
from stagebench.suite.results.run_folder import RunFolder
from tests.support import plans

NEEDED = {name.strip() for name in os.environ.get("STAGEBENCH_NEED", "").split(",") if name.strip()}
EVERY_PAIR = os.environ.get("STAGEBENCH_EVERY_PAIR") == "1"


class Way(NamedTuple):
    """A strategy with all that its meeting depends on, and more of its case."""

    adapter: str
    strategy: str
    launcher: str
    transport: str
    block: Mapping[str, object] = MappingProxyType({})
    within: int = 1  # ranks or devices of a host; what is joined there before it crosses the wire is proven only here

    def __str__(self) -> str:
        return "-".join([self.adapter, self.strategy, self.launcher, *map(str, self.block.values())])


WAYS = [
    Way("pytorch", "ddp", "ssh", "gloo"),
    Way("pytorch", "parameter_server", "ssh", "tensorpipe"),
    Way("tensorflow", "multiworker_mirrored", "ssh", "ring over grpc"),
    Way("tensorflow", "parameter_server", "ssh", "grpc"),
    Way("mxnet", "dist_device_sync", "ssh", "ps-lite", {"devices": 2}, 2),
    Way("cntk", "data_parallel", "mpiexec", "mpi: Open MPI v"),
    Way("caffempi", "two_level", "mpiexec", "mpi: Open MPI v", {"ranks": 2}, 2),
    Way("horovod-mxnet", "allreduce", "ssh", "gloo"),
    Way("horovod-mxnet", "allreduce", "mpiexec", "mpi: Open MPI v"),
]
# Too many for every day: by `tox run -e verify`. They meet as those above of the same launcher and transport do.
UNCLIPPED = {"workload": "gpt_char", "optimiser": "adamw"}
TEXT = {**UNCLIPPED, "clip_norm": 1.0}
REPLICATED = ("ddp", "fsdp", "zero1", "accumulate")
EVERY = [
    *(Way("pytorch", name, "ssh", "gloo", TEXT) for name in (*REPLICATED, "tensor_parallel", "pipeline")),
    Way("pytorch", "pipeline", "ssh", "gloo", {**TEXT, "knobs": {"schedule": "interleaved"}}),
    Way("pytorch", "hybrid", "ssh", "gloo", {**TEXT, "ranks": 2}, 2),
    Way("pytorch", "local_sgd", "ssh", "gloo", {**TEXT, "knobs": {"period": 2}}),
    Way("pytorch", "parameter_server", "ssh", "tensorpipe", UNCLIPPED),
    Way("tensorflow", "parameter_server", "ssh", "grpc", UNCLIPPED),
    Way("tensorflow", "multiworker_mirrored", "ssh", "ring over grpc", TEXT),
    Way("mxnet", "dist_sync", "ssh", "ps-lite", TEXT),
    Way("cntk", "data_parallel", "mpiexec", "mpi: Open MPI v", TEXT),
    Way("caffempi", "data_parallel", "mpiexec", "mpi: Open MPI v", TEXT),
    Way("caffempi", "two_level", "mpiexec", "mpi: Open MPI v", {**TEXT, "ranks": 2}, 2),
    Way("caffempi", "parameter_server", "mpiexec", "mpi: Open MPI v", TEXT),
    *(Way(f"horovod-{engine}", "allreduce", "ssh", "gloo", TEXT) for engine in ("mxnet", "pytorch", "tensorflow")),
    Way("mxnet", "dist_async", "ssh", "ps-lite"),
    Way("caffempi", "data_parallel", "mpiexec", "mpi: Open MPI v"),
    Way("pytorch", "pipeline", "ssh", "gloo"),
    Way("pytorch", "hybrid", "ssh", "gloo", {"ranks": 2}, 2),
    Way("pytorch", "tensor_parallel", "ssh", "gloo"),
    Way("pytorch", "branch_parallel", "ssh", "gloo", {"workload": "googlenet", "batch": 2}),
    Way("pytorch", "zero1", "ssh", "gloo"),
    Way("pytorch", "fsdp", "ssh", "gloo"),
    Way("pytorch", "accumulate", "ssh", "gloo"),
    Way("pytorch", "local_sgd", "ssh", "gloo", {"knobs": {"period": 2}}),
    Way("pytorch", "parameter_server", "ssh", "tensorpipe", {"knobs": {"mode": "async", "staleness": 1}}),
    Way("pytorch", "parameter_server", "ssh", "tensorpipe", {"knobs": {"server_ranks": 1, "backups": 1}}),
]
SAMPLING = {"warmup_limit": 1.0}


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


@pytest.mark.parametrize("way", WAYS + EVERY * EVERY_PAIR, ids=str)
def test_ranks_on_two_hosts_are_measured(laboratory, tmp_path, way):
    absent = pytest.fail if way.adapter in NEEDED else pytest.skip
    try:
        find(adapters()[way.adapter])
    except Unavailable as error:
        absent(str(error))
    plan, run, hosts = tmp_path / "plan.toml", tmp_path / "run", laboratory.layout.hosts
    case = {"adapter": way.adapter, "strategy": way.strategy, "launcher": way.launcher, "nodes": 2, **way.block}
    plan.write_text(plans.brief(case, sampling=SAMPLING))
    before = [wire(host) for host in hosts]
    tokens = [
        sys.executable,
        "-m",
        "stagebench.suite.cli",
        "run",
        str(plan),
        "--hosts",
        ",".join(hosts),
        "-o",
        str(run),
    ]
    proven = EVERY_PAIR or way.within > 1
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
    assert placement.ranks_per_node * placement.devices == way.within
    assert all(rank.joined.transport.startswith(way.transport) for rank in record.ranks)
    proofs = folder.proofs().values()
    assert [proof.reason for proof in proofs if not proof.passed] == []
    assert len(proofs) == proven
    # Every step brings the gradients of every parameter, or what a network in parts hands on; local SGD every second.
    step = record.ranks[0].notes.get("exchanged_bytes", 4 * 402_442)
    steps = 2 if way.strategy == "local_sgd" else 5
    assert all(wire(host).received - was.received > steps * step for host, was in zip(hosts, before, strict=True))
