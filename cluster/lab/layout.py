"""The hosts of a laboratory, their names and addresses: plain values, independent of the machine."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Network

from suite.errors import RequestError

NAME = "lab"
NETWORK = "10.77.0.0/24"
UNSHAPED = "none"  # the rate of links as fast as this machine
SETTING = "STAGEBENCH_LAB"  # the laboratory's name, where no option names one


@dataclass(frozen=True)
class Layout:
    """N hosts NAME1 ... NAMEN with the network's first N addresses, and a switch between them."""

    name: str
    count: int
    network: str = NETWORK

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts' names; their namespaces are called the same."""
        return tuple(f"{self.name}{number}" for number in range(1, self.count + 1))

    @property
    def switch(self) -> str:
        """The namespace of the bridge."""
        return f"{self.name}-switch"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All network namespaces of the laboratory."""
        return (self.switch, *self.hosts)

    def address(self, host: str) -> str:
        """Return a host's address, without the network's length."""
        return str(IPv4Network(self.network)[1 + self.hosts.index(host)])

    @property
    def length(self) -> int:
        return IPv4Network(self.network).prefixlen

    def known(self, host: str) -> str:
        """Return the host if it is one of the laboratory's; RequestError otherwise."""
        if host not in self.hosts:
            raise RequestError(f"{host!r} is no host of the laboratory {self.name!r}; it has {', '.join(self.hosts)}")
        return host


def checked_name(name: str) -> str:
    """Return a laboratory's name; it ends in a letter, or `a1` with host 2 and `a` with host 12 would be the same."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,30}[a-z])?", name):
        raise RequestError(
            f"{name!r} is no laboratory's name; take up to 32 lower-case letters, digits and hyphens, "
            f"a letter first and last, such as {NAME!r}"
        )
    return name


def checked_layout(name: str, count: int, network: str) -> Layout:
    """Return a layout that can be built; RequestError names what is wrong with it."""
    try:
        found = IPv4Network(network)
    except ValueError as error:
        raise RequestError(f"--network {network!r}: {error}; write it such as {NETWORK}") from None
    room = found.num_addresses - 2
    if not 1 <= count <= room:
        raise RequestError(
            f"{count} hosts do not fit into {network}, which has room for 1 to {max(room, 0)}; "
            "ask for fewer, or give a larger --network"
        )
    return Layout(checked_name(name), count, str(found))
