"""Who is connected to whom: each rank's address, and what sits at the other ends of its connections."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from suite.results.rank_report import Connection, Rank

Ends = tuple[str, str, str]  # the host whose own the addresses are, "" where all hosts share them; one end; the other


@dataclass(frozen=True)
class Worker:
    """One rank among others, by its TCP connections; what goes by shared memory or InfiniBand is not among them."""

    rank: int
    host: str
    addresses: tuple[str, ...]  # its own
    peers: tuple[int, ...]  # ranks
    others: tuple[str, ...]  # the addresses of what is no rank's process: servers, what started the ranks


def workers_of(ranks: Sequence[Rank]) -> tuple[Worker, ...]:
    """In the ranks' order; nobody where there is one rank, or where no rank has a connection."""
    owners = {_ends(rank, one.own, one.other): rank.rank for rank in ranks for one in rank.connections}
    return tuple(_worker(rank, owners) for rank in ranks) if owners and len(ranks) > 1 else ()


def _worker(rank: Rank, owners: dict[Ends, int]) -> Worker:
    found = [(one, owners.get(_ends(rank, one.other, one.own))) for one in rank.connections]
    outward: list[tuple[Connection, int | None]] = [(one, peer) for one, peer in found if peer != rank.rank]
    return Worker(
        rank.rank,
        rank.hello.host if rank.hello else "",
        tuple(sorted({_address(one.own) for one, _ in outward})),
        tuple(sorted({peer for _, peer in outward if peer is not None})),
        tuple(sorted({_address(one.other) for one, peer in outward if peer is None})),
    )


def _ends(rank: Rank, one: str, other: str) -> Ends:
    host = rank.hello.host if rank.hello else ""
    return host if ipaddress.ip_address(_address(one)).is_loopback else "", one, other


def _address(end: str) -> str:
    """Without the port."""
    return end.rpartition(":")[0].strip("[]")
