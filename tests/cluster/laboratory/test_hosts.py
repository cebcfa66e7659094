"""Real engines over two hosts of the laboratory."""

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stagebench.cluster.dialects import DIALECTS
from stagebench.cluster.lab.build import end, processes
from stagebench.cluster.lab.network import switch_link, wire
from stagebench.cluster.lab.state import entering
from stagebench.cluster.logins import AGENT
from stagebench.cluster.mpiexec import Mpiexec
from stagebench.suite.contracts.case import Placement
from stagebench.suite.errors import RequestError
from stagebench.suite.processes.placement_check import RankReport, hosts_problem
from stagebench.suite.worker.messages import Hello, Progress, of_type
from stagebench.suite.worker.rendezvous import free_port
from stagebench.workloads.networks.mnist import mnist_small
from tests.support.errors import raising
from tests.support.started import wait_until


@pytest.fixture
def on_hosts(laboratory, launched, monkeypatch):
    """Starts a request in the first host, which engines reach the others from."""

    def go(launcher, request, **how):
        monkeypatch.setenv(AGENT, str(laboratory.agent))
        processes = [
            replace(process, tokens=tuple(entering(laboratory, laboratory.layout.hosts[0], list(process.tokens))))
            for process in launcher.processes(request)
        ]
        return launched(launcher, request, processes, **how)

    return go


def over(hosts, per_node=1):
    return Placement(nodes=len(hosts), ranks_per_node=per_node, hosts=hosts)


def test_ranks_meet_over_the_wire(laboratory, interpreter, job, on_hosts):
    hosts = laboratory.layout.hosts
    request = job(over(hosts, per_node=2), interpreter)
    before = wire(hosts[1])
    result = on_hosts(Mpiexec(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    hellos = [hello for sent in result.messages.values() for hello in of_type(Hello, sent)]
    assert [hello.host for hello in hellos] == [host for host in hosts for _ in range(2)]
    assert wire(hosts[1]).received - before.received > 7 * mnist_small().gradient_bytes()


def test_the_host_that_the_engine_stands_on_may_be_named_last(laboratory, interpreter, job, on_hosts):
    """Open MPI 4 numbers it first all the same."""
    request = job(over(laboratory.layout.hosts[::-1], per_node=2), interpreter)
    result = on_hosts(Mpiexec(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    reports = [RankReport.of(rank, sent) for rank, sent in sorted(result.messages.items())]
    assert hosts_problem(request.placement, reports, Mpiexec.nodes_in_order) is None


@pytest.mark.parametrize("name", ["openmpi5", "openmpi4"])
def test_every_rank_has_the_settings_that_fill_a_wire(laboratory, real, name, job, on_hosts):
    result = on_hosts(Mpiexec(), job(over(laboratory.layout.hosts), real(name)))
    assert (result.outcome, result.reason) == ("ok", "")
    (dialect,) = (each for each in DIALECTS if each.name == name)
    for sent in result.messages.values():
        (hello,) = of_type(Hello, sent)
        assert hello.settings.items() >= dialect.wire.items()
        assert hello.settings["OMPI_MCA_coll_tuned_allreduce_algorithm"] == "3"


@pytest.fixture
def mended(laboratory):
    """The second host, whose link works again when the test is over, and where nothing may be left then."""
    host = laboratory.layout.hosts[1]
    yield host
    switch_link(host, on=True)
    try:
        wait_until(lambda: not any(processes(each) for each in laboratory.layout.hosts))
    finally:
        end(host)


class InStep:
    """A listener that acts once, when a rank has made its first step."""

    def __init__(self, act):
        self.act, self.at = act, None

    def __call__(self, rank, message):
        if isinstance(message, Progress) and self.at is None:
            self.at = time.monotonic()
            self.act()

    @property
    def seconds(self):
        return time.monotonic() - self.at


def test_a_host_that_dies_in_mid_run_is_a_crash_that_names_it(laboratory, interpreter, job, on_hosts, mended):
    def die():
        switch_link(mended, on=False)
        end(mended, patience=0)

    request = job(over(laboratory.layout.hosts), interpreter, knobs={"pace": 0.2})
    fault = InStep(die)
    result = on_hosts(Mpiexec(), request, on_message=fault)
    assert result.outcome == "crash"
    assert fault.seconds < 120
    # The host's end kills the login's shell and what runs in it, in any order; MPI may have been quicker to end it.
    how = r"was ended by SIGKILL|ended with exit code 1(37|43) \(128 \+ SIG(KILL|TERM)\)|ended with exit code 1"
    assert re.match(rf"the host {mended} was lost: its login ({how}) in native \(warmup", result.reason)


@pytest.mark.parametrize("name", ["openmpi5", "openmpi4", "mpich"])
def test_a_cut_link_is_silence_that_ends_in_time(laboratory, real, name, job, on_hosts, mended):
    request = job(over(laboratory.layout.hosts), real(name), knobs={"pace": 0.2})
    fault = InStep(lambda: switch_link(mended, on=False))
    result = on_hosts(Mpiexec(), request, silence=8, on_message=fault)
    assert result.outcome == "timeout"
    assert "sent no message for 8 s (silence limit) in native (warmup, step " in result.reason
    assert fault.seconds < 8 + 120


def test_a_killed_rank_is_named(laboratory, interpreter, job, on_hosts, mended):
    request = job(over(laboratory.layout.hosts), interpreter, knobs={"dies": 0, "signal": "SIGKILL"})
    result = on_hosts(Mpiexec(), request)
    assert result.outcome == "crash"
    # Open MPI 5's survivor may notice the end before the dead one's daemon can tell of it.
    how = "was ended by SIGKILL|closed its connections without a word, on .*,"
    assert re.match(f"rank 0 ({how}) in native", result.reason)


class Forgetful(Mpiexec):
    """Never tells the engine of the hosts."""

    def processes(self, request):
        (process,) = super().processes(request)
        at = process.tokens.index("-hosts")
        return [replace(process, tokens=process.tokens[:at] + process.tokens[at + 2 :])]


def test_an_engine_that_knows_nothing_of_the_hosts_is_found_out(laboratory, real, job, on_hosts):
    request = job(over(laboratory.layout.hosts), real("mpich"))
    result = on_hosts(Forgetful(), request)
    assert (result.outcome, result.reason) == ("ok", ""), "the ranks met, and know no better"
    reports = [RankReport.of(rank, sent) for rank, sent in result.messages.items()]
    assert f"started ranks 0, 1 on {laboratory.layout.hosts[0]};" in hosts_problem(request.placement, reports)


@pytest.mark.parametrize("name", ["openmpi5", "mpich"])
def test_a_host_that_is_not_there_is_named(laboratory, real, name, job, on_hosts):
    request = job(over((laboratory.layout.hosts[0], "nowhere")), real(name))
    result = on_hosts(Mpiexec(), request)
    assert result.outcome == "crash"
    assert result.reason.startswith(
        "the host nowhere was not reached: its login ended with exit code 255 (correct `hosts` or --hosts, or make a "
        "login there work); its last lines"
    )
    assert "nowhere is no host of the laboratory" in str(result.evidence["logs"])


def test_a_folder_that_an_engine_takes_apart_is_refused(laboratory, real, job, on_hosts, tmp_path):
    request = replace(job(over(laboratory.layout.hosts), real("mpich")), folder=tmp_path / "my run")
    with raising(RequestError, "my run/login"):
        on_hosts(Mpiexec(), request)


CHECKOUT = Path(__file__).parents[3]
RANK = """
import os, sys
from stagebench.adapters.pytorch.comm import ProcessGroup
from stagebench.suite.worker.contract import SGD, Setup
rank, rule = int(sys.argv[1]), SGD(0.0, 0.0, 0.0)
group = ProcessGroup(Setup(rank, 2, 0, "ddp", "cpu", 1, 1, "float32", "default", {}, rule, 1, 0))
print(group.maximum(rank + 0.5), os.environ["GLOO_SOCKET_IFNAME"])
group.close()
"""


@pytest.mark.parametrize("own", ["its name", "127.0.1.1"])
def test_gloo_takes_the_wire_also_where_the_first_host_knows_itself_as_127_0_1_1(laboratory, pytorch, own):
    """What Debian's installer writes: the first host's name means the wire to the others and 127.0.1.1 to itself."""
    first = laboratory.layout.address(laboratory.layout.hosts[0])
    port, running = free_port(), []
    for rank, host in enumerate(laboratory.layout.hosts):
        master = "127.0.1.1" if rank == 0 and own == "127.0.1.1" else first
        place = {**os.environ, "PYTHONPATH": str(CHECKOUT), "MASTER_ADDR": master, "MASTER_PORT": str(port)}
        place.pop("GLOO_SOCKET_IFNAME", None)
        tokens = entering(laboratory, host, [str(pytorch), "-W", "ignore", "-c", RANK, str(rank)])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        running.append(subprocess.Popen(tokens, env=place, **pipes))
    try:
        told = [process.communicate(timeout=300) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [out for out, _ in told] == ["1.5 eth0\n"] * 2, told
