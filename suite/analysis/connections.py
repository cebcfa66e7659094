"""The network of a process group: what each rank is connected to, and which interface carried most."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from suite.processes.placement_check import RankReport, busiest
from suite.results.rank_report import Rank

Ends = tuple[str, str, str]  # the host if both addresses are its loopback's, else ""; one end; the other end


@dataclass(frozen=True)
class Worker:
    """A rank among others, by its TCP connections; shared memory and InfiniBand are not among them."""

    rank: int
    host: str
    addresses: tuple[str, ...]  # its own
    peers: tuple[int, ...]  # ranks
    others: tuple[str, ...]  # addresses of processes that are no ranks: servers, the program that started the ranks


def workers_of(ranks: Sequence[Rank]) -> tuple[Worker, ...]:
    """Return a worker per rank, in the ranks' order; () with one rank, or if no rank has a connection."""
    owners = {_ends(rank, link.own, link.other): rank.rank for rank in ranks for link in rank.connections}
    if not owners or len(ranks) < 2:
        return ()
    workers = []
    for rank in ranks:
        addresses, peers, others = set(), set(), set()
        for link in rank.connections:
            peer = owners.get(_ends(rank, link.other, link.own))
            if peer == rank.rank:
                continue  # a connection of a process to itself
            addresses.add(_address(link.own))
            if peer is None:
                others.add(_address(link.other))
            else:
                peers.add(peer)
        host = rank.hello.host if rank.hello else ""
        workers.append(Worker(rank.rank, host, tuple(sorted(addresses)), tuple(sorted(peers)), tuple(sorted(others))))
    return tuple(workers)


def _ends(rank: Rank, near: str, far: str) -> Ends:
    host = rank.hello.host if rank.hello else ""
    return host if ipaddress.ip_address(_address(near)).is_loopback else "", near, far


def _address(end: str) -> str:
    """Return an end of a connection without its port."""
    return end.rpartition(":")[0].strip("[]")


@dataclass(frozen=True)
class Carrier:
    """The interface of a host that sent most."""

    interface: str
    sent: int  # bytes


def carriers(ranks: Sequence[Rank]) -> dict[str, Carrier] | None:
    """Return each host's busiest interface; None on one host, or if no rank counted."""
    reports = []
    for rank in ranks:
        if rank.hello and rank.wire:
            sent = {interface: wire.sent_bytes for interface, wire in rank.wire.items()}
            reports.append(RankReport(rank.rank, rank.hello.host, sent, 0))
    if len({report.host for report in reports}) < 2:
        return None
    return {host: Carrier(interface, sent) for host, (interface, sent) in busiest(reports).items()}
