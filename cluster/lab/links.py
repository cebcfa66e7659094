"""The links of a laboratory: a pair of Ethernet ends for each host, one in it, one on the switch; and their rate.

A rate is read from what a person writes, and given to `tc`.
"""

import json
import re
import subprocess
from dataclasses import dataclass

from cluster.lab.layout import UNSHAPED, Layout
from suite.errors import RequestError, Unavailable

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
class Wire:
    """The state of a host's end of the wire."""

    up: bool
    received: int  # bytes since the laboratory was made
    sent: int


def connect(layout: Layout, host: str) -> None:
    """Make a host's namespace and its link to the switch."""
    port = _port(layout, host)
    run("ip", "netns", "add", host)
    run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "-n", host, "link", "add", WIRE, "type", "veth", "peer", "name", port, "netns", layout.switch)
    run("ip", "-n", layout.switch, "link", "set", port, "master", "bridge", "up")
    run("ip", "-n", host, "address", "add", f"{layout.address(host)}/{layout.length}", "dev", WIRE)
    switch_link(host, on=True)


def shape(layout: Layout, rate: str) -> None:
    """Give every link this rate, separately in each direction: what a host sends and what the switch sends to it."""
    speed = bits(rate)
    for host in layout.hosts:
        for namespace, device in ((host, WIRE), (layout.switch, _port(layout, host))):
            run("ip", "-n", namespace, "link", "set", device, "gso_max_segs", str(packets(speed)))
            queue = ("tc", "-n", namespace, "qdisc")
            if speed is None:
                works(*queue, "del", "dev", device, "root")  # fails where none was set
            else:
                run(*queue, "replace", "dev", device, "root", *discipline(speed, paces=namespace == layout.switch))


def wire(host: str) -> Wire:
    """Return the state and the counters of a host's end."""
    (found,) = json.loads(run("ip", "-n", host, "-json", "-stats", "link", "show", WIRE))
    counted = found["stats64"]
    return Wire(found["operstate"] == "UP", counted["rx"]["bytes"], counted["tx"]["bytes"])


def switch_link(host: str, on: bool) -> None:
    """Cut a host's link, or restore it."""
    run("ip", "-n", host, "link", "set", WIRE, "up" if on else "down")
    if on:  # a route goes with its link, and comes again without its options
        route = run("ip", "-n", host, "route", "show", "dev", WIRE).split()
        run("ip", "-n", host, "route", "replace", *route, "dev", WIRE, "congctl", CONGESTION)


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


def discipline(rate: float, paces: bool) -> list[str]:
    """Return tc's arguments for a token bucket of `rate` bits per second, and for a second one that paces."""
    burst = max(BURST_BYTES, int(rate / 8 * BURST_SECONDS))
    pace = ["peakrate", f"{int(PACE * rate)}bit", "mtu", str(paced(rate))] if paces else []
    return ["tbf", "rate", f"{int(rate)}bit", "burst", str(burst), "latency", LATENCY, *pace]


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


def run(*tokens: str) -> str:
    """Return a program's output; Unavailable has the message of the one that failed."""
    done = subprocess.run(tokens, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
    if done.returncode != 0:
        printed = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise Unavailable(f"`{' '.join(tokens)}` failed: {printed}")
    return done.stdout


def works(*tokens: str) -> bool:
    return subprocess.run(tokens, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS).returncode == 0
