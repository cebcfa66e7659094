"""The placement check: hosts, binding, threads and transport as the ranks report them, against what was asked for.

An engine that does not know the hosts starts all ranks here; one whose "hosts" share memory never sends a byte. Both
report wonderful speeds.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from stagebench.suite.contracts.case import Placement
from stagebench.suite.processes.hosts import elsewhere, own_name
from stagebench.suite.text import counted, grouped
from stagebench.suite.worker import messages
from stagebench.suite.worker.messages import Message, of_type
from stagebench.suite.worker.network import boot
from stagebench.suite.worker.pass_kinds import EXCHANGING

LOOPBACK = "lo"
LEAST = 1 / 64  # of what `comm` moves, that the busiest host must send: a broadcast has one sender, an all-gather parts


@dataclass(frozen=True)
class RankReport:
    """A rank's report of where it ran and what it sent."""

    rank: int
    host: str
    sent: dict[str, int]  # bytes by interface, while it ran; empty where it could not tell
    steps: int  # in which it exchanged gradients
    moved: float = 0.0  # bytes of all messages that `comm` timed
    boot: str = ""  # the running kernel's own mark; empty where it could not tell
    cores: tuple[int, ...] = ()  # that it may use
    thread_cores: tuple[tuple[int, ...], ...] = ()  # of its first thread, and of each that a library bound to one core
    host_cores: int = 0  # of its host in all
    threads: Mapping[str, str] = field(default_factory=dict)  # the variables of `THREADS` that it saw
    device_ids: tuple[str, ...] = ()  # of the GPUs that it drove; empty where it could not tell

    @classmethod
    def of(cls, rank: int, sent: Sequence[Message]) -> "RankReport":
        hello = of_type(messages.Hello, sent)[0]
        wires = of_type(messages.Wire, sent)
        passes = [each for each in of_type(messages.Pass, sent) if each.name in EXCHANGING]
        epochs = [epoch for training in of_type(messages.Training, sent) for epoch in training.epochs]
        joined = of_type(messages.Joined, sent)[-1:]
        return cls(
            rank,
            hello.host,
            {name: traffic.sent_bytes for wire in wires for name, traffic in wire.interfaces.items()},
            sum(len(each.warmup_s) + len(each.step_s) for each in passes) + sum(epoch.steps for epoch in epochs),
            sum(each.bytes * len(each.sample_s) for each in of_type(messages.ExchangeTimes, sent)),
            hello.boot,
            tuple(hello.cores),
            tuple(tuple(cores) for each in joined for cores in (each.cores, *([core] for core in each.bound))),
            hello.host_cores or 0,
            hello.threads,
            tuple(device for each in joined for device in each.device_ids),
        )


def hosts_problem(placement: Placement, reports: Sequence[RankReport], in_order: bool = True) -> str | None:
    """Return how the places differ from those asked for: every host with its own ranks, in a row, node by node.

    `in_order`: nodes are numbered as the hosts were named. Slurm sorts them, Open MPI 4 begins with its own host.
    """
    named = len(placement.hosts) == placement.nodes
    nodes = placement.hosts if named else range(placement.nodes)
    asked = [node for node in nodes for _ in range(placement.ranks_per_node)]
    hosts, there = len(set(asked)), len({each.host for each in reports})
    together = there == hosts == len({(host, each.host) for host, each in zip(asked, reports, strict=True)})
    # Ranks ran on this machine, although every host that was asked for is another one.
    stayed = bool(placement.hosts) and any(map(ran_here, reports)) and all(map(elsewhere, placement.hosts))
    if together and not stayed and not (named and in_order and swapped(placement, reports)):
        return None
    listed = f" ({', '.join(placement.hosts)})" if placement.hosts else ""
    found = grouped(reports, lambda each: each.host).items()
    places = "; ".join(f"ranks {', '.join(str(each.rank) for each in its)} on {host}" for host, its in found)
    return (
        f"{counted(hosts, 'host')}{listed} with {placement.ranks_per_node} ranks each, in a row, were asked for, "
        f"the launcher {placement.launcher!r} started {places}; is it of their own library, does it reach every host?"
    )


def swapped(placement: Placement, reports: Sequence[RankReport]) -> bool:
    """Return whether two of the named hosts have changed places, by the names that they report.

    A name that differs proves nothing: a person may write an address or an alias.
    """
    known = {own_name(each.host) for each in reports} - {""}
    firsts = reports[:: placement.ranks_per_node]
    pairs = [(own_name(host), own_name(first.host)) for host, first in zip(placement.hosts, firsts, strict=True)]
    return any(asked in known and asked != found for asked, found in pairs)


def ran_here(one: RankReport) -> bool:
    """Return whether a rank ran here: hosts of one name differ in the kernel, hosts of one kernel in the name."""
    return one.host == socket.gethostname() and one.boot == boot()


def busiest(reports: Sequence[RankReport]) -> dict[str, tuple[str, int]]:
    """Return, by host, the interface that sent most, except loopback, and its bytes; only hosts that counted them."""
    found: dict[str, tuple[str, int]] = {}
    for each in reports:
        sent = [(count, name) for name, count in each.sent.items() if name != LOOPBACK]
        if sent:
            count, name = max(sent)
            found[each.host] = max(found.get(each.host, (name, 0)), (name, count), key=lambda pair: pair[1])
    return found


def transport_problem(reports: Sequence[RankReport], gradient_bytes: float, share: float) -> str | None:
    """Name a host that sent less than `share` of its gradients over the wire; None if all did, or only one host ran.

    For messages that `comm` moved, only the busiest host is checked.
    """
    if len({each.host for each in reports}) < 2:
        return None
    found, steps = busiest(reports), min(each.steps for each in reports)
    for host, (interface, count) in found.items():
        if count < share * gradient_bytes * steps:
            exchanged = f"gradients of {gradient_bytes / 1e6:.3g} MB were exchanged in {steps} steps"
            return f"{exchanged} between hosts, {past(host, interface, count)}"
    moved = min(each.moved for each in reports)
    most = max(found.items(), key=lambda pair: pair[1][1], default=None)
    if most is not None and most[1][1] < LEAST * moved:
        return f"messages of {moved / 1e6:.3g} MB were timed between hosts, {past(most[0], *most[1])}"
    return None


def past(host: str, interface: str, count: int) -> str:
    """Return the end of the sentence: the few bytes that were sent."""
    return (
        f"but the busiest interface of {host}, {interface}, sent {count / 1e6:.3g} MB meanwhile: they did not take the "
        "wire; look for shared memory between the hosts, or for a device whose bytes the system does not count"
    )


def binding_problem(placement: Placement, reports: Sequence[RankReport]) -> str | None:
    """Name a rank with fewer cores than threads, or ranks on the same cores, although their host has more, or None.

    Some launchers and sites pin ranks, mostly to one core. On another host a cpuset counts as pinning, too: a Slurm job
    that was given fewer cores than threads has the speed of fewer threads. On this host, this process has the same one.
    """
    wanted = placement.threads * placement.devices
    for each in reports:
        there = len(os.sched_getaffinity(0)) if ran_here(each) else each.host_cores
        if 0 < len(each.cores) < min(wanted, there):
            return (
                f"rank {each.rank} may use {len(each.cores)} core{'s' * (len(each.cores) > 1)} "
                f"({', '.join(map(str, each.cores))}) of the {there} of {each.host} and is to run {wanted} "
                f"threads: the launcher {placement.launcher!r}, or what started stagebench, bound it to them; take "
                "that setting away, or ask for fewer threads"
            )
    for host, its in grouped(reports, lambda each: each.host).items():
        there = len(os.sched_getaffinity(0)) if ran_here(its[0]) else its[0].host_cores
        bound = [(each.rank, cores) for each in its for cores in each.thread_cores if 0 < len(cores) < there]
        for cores, sharing in grouped(bound, itemgetter(1)).items():
            if len(cores) < len(sharing) and len({core for _, those in bound for core in those}) < there:
                return (
                    f"threads of ranks {', '.join(str(rank) for rank in dict(sharing))} share "
                    f"{counted(len(cores), 'core')} ({', '.join(map(str, cores))}) of the {there} of {host}: the "
                    f"launcher {placement.launcher!r}, what started stagebench, or a library of threads bound them to "
                    "it; take that setting away, or write binding = 'cores'"
                )
    return None


def devices_problem(placement: Placement, reports: Sequence[RankReport]) -> str | None:
    """Name ranks that shared a GPU unasked, or None: each has half of its speed, and half of its memory."""
    drivers: dict[str, list[int]] = {}
    for each in reports:
        for device in each.device_ids:
            drivers.setdefault(device, []).append(each.rank)
    for device, ranks in drivers.items():
        if len(ranks) > 1 and not placement.share_devices:
            return (
                f"ranks {', '.join(map(str, ranks))} drove the same GPU, {device}: each was shown the same; "
                "let it show each rank its own, ask for fewer ranks per node, or write share_devices = true"
            )
    return None


def threads_problem(placement: Placement, reports: Sequence[RankReport], given: Mapping[str, str]) -> str | None:
    """Name a rank that saw another number of threads than was `given` to the launcher for it; None if none did."""
    for each in reports:
        for name, value in given.items():
            seen = each.threads.get(name)
            if seen != value:
                return (
                    f"rank {each.rank} on {each.host} was to see {name}={value} and saw "
                    f"{'none' if seen is None else seen}: the launcher {placement.launcher!r} did not hand it over, or "
                    "a start-up file or wrapper there sets its own; take that setting away, or ask for as many threads"
                )
    return None
