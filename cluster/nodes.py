"""The common part of launchers over several nodes: requirements, hosts, the address where ranks meet, queueing."""

import ipaddress
import os
import socket
from abc import abstractmethod
from pathlib import Path

from stagebench.suite.contracts.case import Placement
from stagebench.suite.contracts.launcher import Launcher, Process, Request
from stagebench.suite.errors import RequestError, Unavailable
from stagebench.suite.processes.hosts import LOOPBACK, here
from stagebench.suite.worker.rendezvous import address_towards


class CheckedLauncher(Launcher):
    """A launcher that says what it lacks by an exception; each request is checked again before it starts."""

    @abstractmethod
    def check(self, placement: Placement, interpreter: Path) -> None:
        """Unavailable names what is missing for a placement, with the remedy."""

    @abstractmethod
    def start(self, request: Request) -> list[Process]:
        """Return the processes of a request that has been checked."""

    def missing(self, placement: Placement, interpreter: Path) -> str | None:
        try:
            self.check(placement, interpreter)
        except Unavailable as error:
            return str(error)
        return None

    def processes(self, request: Request) -> list[Process]:
        problem = self.missing(request.placement, request.interpreter)
        if problem is not None:
            raise RequestError(problem)
        return self.start(request)


def check_hosts(placement: Placement) -> None:
    """Unavailable, with the remedy, if one of several nodes has no host."""
    if placement.nodes != 1 and len(placement.hosts) != placement.nodes:
        raise Unavailable(
            f"the placement asks for {placement.nodes} nodes and names {len(placement.hosts)} hosts "
            f"({', '.join(placement.hosts) or 'none'}); name one per node with `hosts` in the plan or --hosts"
        )


def meeting_address(placement: Placement) -> str:
    """Return the first host's address as the other hosts see it, in numbers; Unavailable names a host without one.

    Names are looked up here and not on the hosts: a host knows its own often as 127.0.1.1.
    """
    hosts = placement.hosts
    if len(set(hosts)) < 2:
        return LOOPBACK
    first, *others = [address(host) for host in hosts]
    if here(hosts[0]):
        return own_address(others[0])
    if loopback(first) and not all(map(loopback, others)):
        raise Unavailable(
            f"the first host, {hosts[0]!r}, is {first} to this machine, where the other hosts cannot reach it; "
            "name it by its address in the network"
        )
    return first


def address(host: str) -> str:
    """Return a host's IPv4 address in numbers; Unavailable if this machine knows none."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise Unavailable(
            f"the host {host!r} has no IPv4 address that this machine knows ({error}), and ranks meet over IPv4; "
            "correct the name in `hosts` or --hosts, or write that address in its place"
        ) from error


def own_address(peer: str) -> str:
    """Return the address by which `peer` can reach this machine; nothing is sent."""
    try:
        return address_towards(peer)
    except OSError as error:
        raise Unavailable(f"there is no way from this machine to {peer} ({error}); check `hosts`") from error


def loopback(numbers: str) -> bool:
    return ipaddress.ip_address(numbers).is_loopback


def queue_limit(variable: str, usual: float) -> float:
    """Return the variable's seconds, or the usual ones; Unavailable if it is no number of seconds."""
    given = os.environ.get(variable, str(usual))
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise Unavailable(f"{variable} is {given!r}; it is a number of seconds above 0 (without it {usual:g})")
    return seconds
