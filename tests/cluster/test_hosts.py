"""Real engines over two hosts of the laboratory."""

import re
from dataclasses import replace

import pytest

from cluster.agent import AGENT
from cluster.lab.agent import entering
from cluster.lab.links import switch_link, wire
from cluster.lab.people import end, processes
from cluster.mpiexec import Mpiexec
from suite.case import Placement
from workloads.networks.mnist import mnist_small


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


@pytest.mark.parametrize("per_node", [1, 2])
def test_ranks_meet_over_the_wire(laboratory, interpreter, job, on_hosts, per_node):
    hosts = laboratory.layout.hosts
    request = job(over(hosts, per_node), interpreter)
    before = wire(hosts[1])
    result = on_hosts(Mpiexec(), request)
    assert (result.outcome, result.reason) == ("ok", "")
    hellos = [message for messages in result.messages.values() for message in messages if message["type"] == "hello"]
    assert [hello["host"] for hello in hellos] == [host for host in hosts for _ in range(per_node)]
    assert wire(hosts[1]).received - before.received > 7 * mnist_small().gradient_bytes()


@pytest.fixture
def mended(laboratory):
    """The second host, whose link works again when the test is over, and where nothing may be left then."""
    host = laboratory.layout.hosts[1]
    yield host
    switch_link(host, on=True)
    left = {each: processes(each) for each in laboratory.layout.hosts}
    end(host)
    assert not any(left.values())


def in_step(act):
    """A listener that acts once when a rank has made its first step."""
    done = []

    def heard(rank, message):
        if message["type"] == "progress" and not done:
            done.append(message)
            act()

    return heard


def test_a_host_that_dies_in_mid_run_is_a_crash_that_names_it(laboratory, interpreter, job, on_hosts, mended):
    def die():
        switch_link(mended, on=False)
        end(mended, patience=0)

    request = job(over(laboratory.layout.hosts), interpreter, knobs={"pace": 0.2})
    result = on_hosts(Mpiexec(), request, heard=in_step(die))
    assert result.outcome == "crash"
    assert result.seconds < 25
    assert result.reason.startswith(f"the host {mended} was lost: its login was ended by SIGKILL in native (warmup")


def test_a_cut_link_is_silence_that_ends_in_time(laboratory, interpreter, job, on_hosts, mended):
    request = job(over(laboratory.layout.hosts), interpreter, knobs={"pace": 0.2})
    result = on_hosts(Mpiexec(), request, silence=4, heard=in_step(lambda: switch_link(mended, on=False)))
    assert result.outcome == "timeout"
    assert "said nothing for 4 s (silence limit) in native (warmup, step " in result.reason
    assert result.seconds < 25


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named_wherever_it_ran(laboratory, interpreter, job, on_hosts, mended, rank):
    request = job(over(laboratory.layout.hosts), interpreter, knobs={"dies": rank, "signal": "SIGKILL"})
    result = on_hosts(Mpiexec(), request)
    assert result.outcome == "crash"
    # Open MPI 5's survivor may notice the end before the dead one's daemon can tell of it.
    assert re.match(
        f"rank {rank} (was ended by SIGKILL|closed its connections without a word, on .*,) in native", result.reason
    )
