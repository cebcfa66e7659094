"""How fast a link is: read from what a person writes, told to `tc`."""

import re

from suite.errors import RequestError

UNSHAPED = "none"
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SLOWEST, FASTEST = 1e5, 1e11  # bits/s; below, a burst of one packet would be most of a second
# A bucket of two milliseconds keeps the wire busy between two turns of the scheduler, and no less than some packets.
BURST_SECONDS, BURST_BYTES = 0.002, 32768
LATENCY = "50ms"  # of waiting in the queue before packets are dropped


def bits(rate: str) -> float | None:
    """Bits per second, None when the link is not to be shaped; RequestError when it is no rate.

    tc's `bps` are bytes per second, which nobody expects: refused.
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


def discipline(rate: float) -> list[str]:
    """The words in which tc takes a token bucket of so many bits per second."""
    burst = max(BURST_BYTES, int(rate / 8 * BURST_SECONDS))
    return ["tbf", "rate", f"{int(rate)}bit", "burst", str(burst), "latency", LATENCY]
