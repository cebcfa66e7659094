"""Which host is this one?"""

import ipaddress
import socket

import psutil

LOOPBACK = "127.0.0.1"


def here(host: str) -> bool:
    """Whether a name or address that a person wrote means this machine."""
    return host in ("localhost", LOOPBACK, socket.gethostname(), socket.getfqdn()) or _own(host)


def _own(host: str) -> bool:
    """Whether it is an address in numbers of one of this machine's interfaces."""
    try:
        numbers = ipaddress.ip_address(host)
    except ValueError:
        return False
    every = (one.address for addresses in psutil.net_if_addrs().values() for one in addresses)
    return str(numbers) in (address.partition("%")[0] for address in every)
