"""Where the ranks really ran, and whether their bytes took the wire: engines that are told wrongly do neither.

One that never heard of the hosts starts all ranks here; one whose "hosts" share memory never sends a byte. Both
report wonderful speeds.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suite.contracts.case import Placement
from suite.environments.hosts import elsewhere, own_name
from suite.worker.wire import boot

EXCHANGING = ("native", "staged", "comm_only")  # the passes in which gradients travel
LOOPBACK = "lo"
LEAST = 1 / 64  # of what `comm` moves, that the busiest host must send: a broadcast has one sender, an all-gather parts


@dataclass(frozen=True)
class Told:
    """What one rank told of itself."""

    rank: int
    host: str
    sent: dict[str, int]  # bytes by interface, while it ran; empty where it could not tell
    steps: int  # in which it exchanged gradients
    moved: float = 0.0  # bytes of all messages that `comm` timed
    boot: str = ""  # the running kernel's own mark; empty where it could not tell
    cores: tuple[int, ...] = ()  # that it may use
    host_cores: int = 0  # of its host in all
    threads: Mapping[str, str] = field(default_factory=dict)  # the variables of `THREADS` that it saw

    @classmethod
    def of(cls, rank: int, messages: Sequence[dict[str, Any]]) -> "Told":
        """From its messages; a later one of the same kind counts."""
        hello: dict[str, Any] = {"host": ""}
        sent, steps, moved = {}, 0, 0.0
        for message in messages:
            if message["type"] == "hello":
                hello = message
            elif message["type"] == "wire":
                sent = {name: counted["sent"] for name, counted in message["interfaces"].items()}
            elif message["type"] == "pass" and message["record"]["pass"] in EXCHANGING:
                steps += len(message["record"]["warmup_s"]) + len(message["record"]["step_s"])
            elif message["type"] == "training":
                steps += sum(epoch["steps"] for epoch in message["record"]["epochs"])
            elif message["type"] == "comm" and "seconds" in message["row"]:
                moved += message["row"]["bytes"] * len(message["row"]["seconds"])
        return cls(
            rank,
            hello["host"],
            sent,
            steps,
            moved,
            boot=hello.get("boot", ""),
            cores=tuple(hello.get("cores", ())),
            host_cores=hello.get("host_cores") or 0,
            threads=hello.get("threads", {}),
        )


def misplaced(placement: Placement, told: Sequence[Told], in_order: bool = True) -> str | None:
    """How the places differ from those asked for, or None: every host has its own ranks, in a row, node by node.

    `in_order`: nodes are numbered as the hosts were named. Slurm sorts them, Open MPI 4 begins with its own host.
    """
    named = len(placement.hosts) == placement.nodes
    nodes = placement.hosts if named else range(placement.nodes)
    asked = [node for node in nodes for _ in range(placement.ranks_per_node)]
    hosts, there = len(set(asked)), len({each.host for each in told})
    together = there == hosts == len({(host, each.host) for host, each in zip(asked, told, strict=True)})
    if together and not strayed(placement, told) and not (named and in_order and exchanged(placement, told)):
        return None
    return refused(placement, told, hosts)


def exchanged(placement: Placement, told: Sequence[Told]) -> bool:
    """Whether a host that calls itself as one was asked for is at another's place; another name alone proves nothing.

    A person may write an address or an alias.
    """
    known = {own_name(each.host) for each in told} - {""}
    firsts = told[:: placement.ranks_per_node]
    pairs = [(own_name(host), own_name(first.host)) for host, first in zip(placement.hosts, firsts, strict=True)]
    return any(asked in known and asked != found for asked, found in pairs)


def strayed(placement: Placement, told: Sequence[Told]) -> bool:
    """Whether ranks ran on this machine, although every host that was asked for is another."""
    return bool(placement.hosts) and any(map(ran_here, told)) and all(map(elsewhere, placement.hosts))


def ran_here(one: Told) -> bool:
    """Whether a rank ran on this machine: namesakes have another kernel, a kernel's other hosts another name."""
    return one.host == socket.gethostname() and one.boot == boot()


def refused(placement: Placement, told: Sequence[Told], hosts: int) -> str:
    """What was asked for and what came of it."""
    found: dict[str, list[int]] = {}
    for each in told:
        found.setdefault(each.host, []).append(each.rank)
    named = f" ({', '.join(placement.hosts)})" if placement.hosts else ""
    there = "; ".join(f"ranks {', '.join(map(str, ranks))} on {host}" for host, ranks in found.items())
    return (
        f"{hosts} host{'s' * (hosts > 1)}{named} with {placement.ranks_per_node} ranks each, in a row, were asked for, "
        f"the launcher {placement.launcher!r} started {there}; is it of their own library, does it reach every host?"
    )


def busiest(told: Sequence[Told]) -> dict[str, tuple[str, int]]:
    """By host: the interface that sent most, loopback aside, and how many bytes; of the hosts that could tell."""
    found: dict[str, tuple[str, int]] = {}
    for each in told:
        sent = [(count, name) for name, count in each.sent.items() if name != LOOPBACK]
        if sent:
            count, name = max(sent)
            found[each.host] = max(found.get(each.host, (name, 0)), (name, count), key=lambda pair: pair[1])
    return found


def unwired(told: Sequence[Told], gradient_bytes: float, share: float) -> str | None:
    """Which host sent less than `share` of its gradients over the wire, or None; one host needs no wire.

    Of what `comm` moved only the busiest host is asked.
    """
    if len({each.host for each in told}) < 2:
        return None
    found, steps = busiest(told), min(each.steps for each in told)
    for host, (interface, count) in found.items():
        if count < share * gradient_bytes * steps:
            exchanged = f"gradients of {gradient_bytes / 1e6:.3g} MB were exchanged in {steps} steps"
            return f"{exchanged} between hosts, {past(host, interface, count)}"
    moved = min(each.moved for each in told)
    most = max(found.items(), key=lambda pair: pair[1][1], default=None)
    if most is not None and most[1][1] < LEAST * moved:
        return f"messages of {moved / 1e6:.3g} MB were timed between hosts, {past(most[0], *most[1])}"
    return None


def past(host: str, interface: str, count: int) -> str:
    """The sentence's end: so little was sent."""
    return (
        f"but the busiest interface of {host}, {interface}, sent {count / 1e6:.3g} MB meanwhile: they did not take the "
        "wire; look for shared memory between the hosts, or for a device whose bytes the system does not count"
    )


def pinned(placement: Placement, told: Sequence[Told]) -> str | None:
    """Which rank may use fewer cores than it has threads, or None; a host that has no more of them is asked for it.

    Launchers and sites pin ranks of themselves, to one core mostly. On another host a cpuset counts as pinning, too: a
    Slurm job that was given fewer cores than threads has the speed of fewer threads. Here this process has the same.
    """
    wanted = placement.threads * placement.devices
    for each in told:
        there = len(os.sched_getaffinity(0)) if ran_here(each) else each.host_cores
        if 0 < len(each.cores) < min(wanted, there):
            return (
                f"rank {each.rank} may use {len(each.cores)} core{'s' * (len(each.cores) > 1)} "
                f"({', '.join(map(str, each.cores))}) of the {there} of {each.host} and is to run {wanted} "
                f"threads: the launcher {placement.launcher!r}, or what started stagebench, pinned it; take that "
                "setting away, or ask for fewer threads"
            )
    return None


def unthreaded(placement: Placement, told: Sequence[Told], given: Mapping[str, str]) -> str | None:
    """Which rank saw another number of threads than was `given` to the launcher for it, or None."""
    for each in told:
        for name, value in given.items():
            seen = each.threads.get(name)
            if seen != value:
                return (
                    f"rank {each.rank} on {each.host} was to see {name}={value} and saw "
                    f"{'none' if seen is None else seen}: the launcher {placement.launcher!r} did not hand it over, or "
                    "a start-up file or wrapper there sets its own; take that setting away, or ask for as many threads"
                )
    return None
