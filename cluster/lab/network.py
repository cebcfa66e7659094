"""The network of a laboratory: its hosts, their addresses, and a link for each, of a rate that a person writes.

A link is a pair of Ethernet ends, one in the host, one on the switch.
"""

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Network

from stagebench.suite.errors import RequestError, Unavailable

NAME = "lab"
NETWORK = "10.77.0.0/24"
UNSHAPED = "none"  # the rate of links as fast as this machine
SETTING = "STAGEBENCH_LAB"  # the laboratory's name, where no option names one

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SLOWEST, FASTEST = 1e5, 1e11  # bits/s; below, a burst of one packet would be most of a second
# Two buckets. The large one, which every link has, keeps the rate over time, and makes up for late timers of a busy
# machine. The small one, where the switch sends to a host, is a little faster and paces: only its size passes at once,
# and larger messages take as long as on a wire. With the large one alone 16 KiB took an eighth of their time. A small
# one of half this size needs packets of half the size, which cost the hosts' own cores twice the processor time.
BURST_SECONDS, BURST_BYTES = 0.002, 32768
PACE, PACE_SECONDS, PACE_BYTES = 1.05, 1.31e-4, 16384
FULL = 0.75  # of the small bucket is the largest packet that a host makes: the rest is for timers that come late
PACKET, LARGEST_PACKET = 1514, 65536  # bytes: on the wire; the most that a host hands to its card to be cut
LATENCY = "50ms"  # of waiting in the queue before packets are dropped
WIRE = "eth0"
# Linux's usual congestion control, whatever this kernel's default: bbr stops sending for 200 ms every ten seconds to
# measure the wire's own latency, and an exchange of two seconds comes out 5 % longer every now and then.
CONGESTION = "cubic"
SECONDS = 30.0


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


@dataclass(frozen=True)
class Wire:
    """The state of a host's end of the wire."""

    up: bool
    received: int  # bytes since the laboratory was made
    sent: int


def connect(layout: Layout, host: str) -> None:
    """Make a host's namespace and its link to the switch."""
    port = _port(layout, host)
    run(f"ip netns add {host}")
    run(f"ip -n {host} link set lo up")
    run(f"ip -n {host} link add {WIRE} type veth peer name {port} netns {layout.switch}")
    run(f"ip -n {layout.switch} link set {port} master bridge up")
    run(f"ip -n {host} address add {layout.address(host)}/{IPv4Network(layout.network).prefixlen} dev {WIRE}")
    switch_link(host, on=True)


def shape(layout: Layout, rate: str) -> None:
    """Give every link this rate, separately in each direction: what a host sends and what the switch sends to it."""
    speed = bits(rate)
    for host in layout.hosts:
        for namespace, device in ((host, WIRE), (layout.switch, _port(layout, host))):
            run(f"ip -n {namespace} link set {device} gso_max_segs {packets(speed)}")
            queue = f"tc -n {namespace} qdisc"
            if speed is None:
                works(f"{queue} del dev {device} root")  # fails where none was set
            else:
                run(f"{queue} replace dev {device} root {discipline(speed, paces=namespace == layout.switch)}")


def wire(host: str) -> Wire:
    """Return the state and the counters of a host's end."""
    (found,) = json.loads(run(f"ip -n {host} -json -stats link show {WIRE}"))
    counted = found["stats64"]
    return Wire(found["operstate"] == "UP", counted["rx"]["bytes"], counted["tx"]["bytes"])


def switch_link(host: str, on: bool) -> None:
    """Cut a host's link, or restore it."""
    run(f"ip -n {host} link set {WIRE} {'up' if on else 'down'}")
    if on:  # a route goes with its link, and comes again without its options
        route = run(f"ip -n {host} route show dev {WIRE}").strip()
        run(f"ip -n {host} route replace {route} dev {WIRE} congctl {CONGESTION}")


def _port(layout: Layout, host: str) -> str:
    return f"port{1 + layout.hosts.index(host)}"


def bits(rate: str) -> float | None:
    """Return bits per second, None for links that are not shaped; RequestError if it is no rate.

    tc's `bps`, which means bytes per second, is refused.
    """
    if rate == UNSHAPED:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", rate.lower())
    if match is None or not SLOWEST <= float(match[1]) * UNITS[match[2]] <= FASTEST:
        raise RequestError(
            f"{rate!r} is no rate; write 100kbit to 100gbit in kbit, mbit or gbit, such as 1gbit or 2.5gbit, "
            f"or {UNSHAPED!r} for links as fast as this machine"
        )
    return float(match[1]) * UNITS[match[2]]


def discipline(rate: float, paces: bool) -> str:
    """Return tc's arguments for a token bucket of `rate` bits per second, and for a second one that paces."""
    pace = f" peakrate {int(PACE * rate)}bit mtu {paced(rate)}" if paces else ""
    return f"tbf rate {int(rate)}bit burst {max(BURST_BYTES, int(rate / 8 * BURST_SECONDS))} latency {LATENCY}{pace}"


def paced(rate: float) -> int:
    """Return the bytes that pass at once: a message that is not larger takes no longer than on an unshaped link."""
    return max(PACE_BYTES, int(rate / 8 * PACE_SECONDS))


def pacing(rate: str) -> str:
    """Return a sentence about messages that are too small to be paced; "" for an unshaped link."""
    speed = bits(rate)
    return f"Messages of {paced(speed) >> 10} KiB and less pass faster than {rate}." if speed else ""


def packets(rate: float | None) -> int:
    """Return how many packets of the wire a host may hand over as one; `rate` is None for an unshaped link."""
    most = LARGEST_PACKET // PACKET
    return most if rate is None else min(most, int(FULL * paced(rate) / PACKET))


def run(command: str) -> str:
    """Return a program's output; Unavailable has the message of the one that failed."""
    done = _done(command)
    if done.returncode != 0:
        printed = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise Unavailable(f"`{command}` failed: {printed}")
    return done.stdout


def works(command: str) -> bool:
    return _done(command).returncode == 0


def _done(command: str) -> subprocess.CompletedProcess[str]:
    tokens = shlex.split(command)
    return subprocess.run(
        tokens, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
    )
