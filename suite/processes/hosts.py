"""The names and addresses of hosts: which of them is this machine?"""

import ipaddress
import re
import socket

from stagebench.suite.processes.query import ask
from stagebench.suite.text import shown
from stagebench.suite.worker.machine import machine
from stagebench.suite.worker.messages import Machine

LOOPBACK = "127.0.0.1"
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"  # RFC 1123, and underscores, which many networks have
NAME = re.compile(rf"{LABEL}(?:\.{LABEL})*")


def refused(host: str) -> str | None:
    """Return why this cannot be a host; None for a name of RFC 1123, or with underscores, and an IPv4 or IPv6 address.

    Names go into scripts, manifests and command lines of ssh, mpiexec and Slurm: nothing else may.
    """
    if len(host) <= 253 and (NAME.fullmatch(host) or ("%" not in host and _numbers(host) is not None)):
        return None
    login = "; a login's user stands in ~/.ssh/config" if "@" in host else ""
    return f"{shown(host)} is no host: take letters, digits, '-', '_' and '.', or an address in numbers{login}"


def here(host: str) -> bool:
    """Return whether a name or address that a person wrote means this machine."""
    return host in ("localhost", LOOPBACK, socket.gethostname(), socket.getfqdn()) or _own(host)


def own_name(host: str) -> str:
    """Return the short name by which a host may call itself; "" for an address and for "localhost"."""
    short = host.partition(".")[0].lower()
    return "" if _numbers(host) is not None or short == "localhost" else short


def elsewhere(host: str) -> bool:
    """Return whether a name certainly means another machine: its address is none of ours. An address may be mapped."""
    if own_name(host) in ("", own_name(socket.gethostname())):
        return False
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return False
    return not ipaddress.ip_address(address).is_loopback and not _own(address)


def this_machine() -> Machine:
    """Return what `stagebench.suite.worker.machine` knows of this host."""

    def answer(command: list[str]) -> str:
        done = ask(command, 10.0)
        done.check_returncode()
        return done.stdout

    return machine(answer)


def _numbers(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address in numbers; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _own(host: str) -> bool:
    """Return whether it is an address, in numbers, of one of this machine's interfaces."""
    numbers = _numbers(host)
    if numbers is None:
        return False
    import psutil  # imported here: the command line's help does not need it

    addresses = (address.address for several in psutil.net_if_addrs().values() for address in several)
    return str(numbers) in (address.partition("%")[0] for address in addresses)
