"""Where the ranks really ran, and whether their bytes took the wire: engines that are told wrongly do neither.

One that never heard of the hosts starts all ranks here; one whose "hosts" share memory never sends a byte. Both
report wonderful speeds.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suite.case import Placement

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

    @classmethod
    def of(cls, rank: int, messages: Sequence[dict[str, Any]]) -> "Told":
        """From its messages; a later one of the same kind counts."""
        host, sent, steps, moved = "", {}, 0, 0.0
        for message in messages:
            if message["type"] == "hello":
                host = message["host"]
            elif message["type"] == "wire":
                sent = {name: counted["sent"] for name, counted in message["interfaces"].items()}
            elif message["type"] == "pass" and message["record"]["pass"] in EXCHANGING:
                steps += len(message["record"]["warmup_s"]) + len(message["record"]["step_s"])
            elif message["type"] == "training":
                steps += sum(epoch["steps"] for epoch in message["record"]["epochs"])
            elif message["type"] == "comm" and "seconds" in message["row"]:
                moved += message["row"]["bytes"] * len(message["row"]["seconds"])
        return cls(rank, host, sent, steps, moved)


def misplaced(placement: Placement, told: Sequence[Told]) -> str | None:
    """How the hosts differ from those asked for, or None. Names are not compared: a host has several."""
    asked = Counter(placement.hosts or range(placement.nodes))
    wanted = sorted(count * placement.ranks_per_node for count in asked.values())
    found: dict[str, list[int]] = {}
    for each in told:
        found.setdefault(each.host, []).append(each.rank)
    if sorted(map(len, found.values())) == wanted:
        return None
    named = f" ({', '.join(placement.hosts)})" if placement.hosts else ""
    there = "; ".join(f"ranks {', '.join(map(str, ranks))} on {host}" for host, ranks in found.items())
    return (
        f"{len(asked)} host{'s' * (len(asked) > 1)}{named} with {placement.ranks_per_node} ranks each were asked for, "
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


def pinned(placement: Placement, cores: Sequence[Sequence[int]]) -> str | None:
    """Which rank may use fewer cores than it has threads, or None; a machine that has no more of them is asked for it.

    `cores`: of every rank, those that it may use. Launchers and sites pin ranks of themselves, to one core mostly.
    """
    wanted = placement.threads * placement.devices
    here = len(os.sched_getaffinity(0))
    for rank, allowed in enumerate(cores):
        if 0 < len(allowed) < min(wanted, here):
            return (
                f"rank {rank} may use {len(allowed)} core{'s' * (len(allowed) > 1)} ({', '.join(map(str, allowed))}) "
                f"and is to run {wanted} threads: the launcher {placement.launcher!r}, or what started stagebench, "
                "pinned it; take that setting away, or ask for fewer threads"
            )
    return None
