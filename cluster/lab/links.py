"""The wires: a pair of Ethernet ends for each host, one in it, one on the switch."""

import json
from dataclasses import dataclass

from cluster.lab.layout import Layout
from cluster.lab.rate import bits, discipline, packets
from cluster.lab.tools import run, works

WIRE = "eth0"
# Linux's usual congestion control, whatever this kernel's default: bbr stops sending for 200 ms every ten seconds to
# measure the wire's own latency, and an exchange of two seconds comes out 5 % longer every now and then.
CONGESTION = "cubic"


@dataclass(frozen=True)
class Wire:
    """What a host's end of the wire tells."""

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
    """Give every link this rate, in each direction by itself; what a host sends and what the switch sends it."""
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
    """The state and the counters of a host's end."""
    (found,) = json.loads(run("ip", "-n", host, "-json", "-stats", "link", "show", WIRE))
    counted = found["stats64"]
    return Wire(found["operstate"] == "UP", counted["rx"]["bytes"], counted["tx"]["bytes"])


def switch_link(host: str, on: bool) -> None:
    """Cut a host's link, or mend it."""
    run("ip", "-n", host, "link", "set", WIRE, "up" if on else "down")
    if on:  # a route goes with its link, and comes again without its options
        route = run("ip", "-n", host, "route", "show", "dev", WIRE).split()
        run("ip", "-n", host, "route", "replace", *route, "dev", WIRE, "congctl", CONGESTION)


def _port(layout: Layout, host: str) -> str:
    return f"port{1 + layout.hosts.index(host)}"
