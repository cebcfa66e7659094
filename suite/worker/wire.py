"""How many bytes every interface of this host carries: what the system has counted, InfiniBand's devices too.

Oldest Python: 3.6.
"""

import contextlib
import fcntl
import glob
import os
import socket
import struct
from typing import Dict, Tuple

from suite.worker.messages import Traffic

SIOCGIFADDR = 0x8915
DISCARD = 9  # a port; nothing is sent there
NETWORK = "/proc/net/dev"  # of this process's own network namespace
INFINIBAND = "/sys/class/infiniband/*/ports/*/counters"  # what goes past the system's own network
BOOT = "/proc/sys/kernel/random/boot_id"
WORD = 4  # bytes; their counters count words

Counters = Dict[str, Tuple[int, int]]  # by interface: bytes received, bytes sent


def counters(network: str = NETWORK, infiniband: str = INFINIBAND) -> Counters:
    """As they stand now; empty where the system does not tell, without the ports that do not."""
    found = {}  # type: Counters
    if os.path.exists(network):
        with open(network) as stream:
            for line in stream.readlines()[2:]:
                name, _, numbers = line.partition(":")
                found[name.strip()] = (int(numbers.split()[0]), int(numbers.split()[8]))
    for folder in glob.glob(infiniband):
        device, _, port = folder.split(os.sep)[-4:-1]
        # An adapter without management counts nothing: "N/A (no PMA)". Others may be read by root alone.
        with contextlib.suppress(OSError, ValueError):
            received, sent = (_words(os.path.join(folder, "port_%s_data" % way)) for way in ("rcv", "xmit"))
            found["%s:%s" % (device, port)] = (received * WORD, sent * WORD)
    return found


def boot() -> str:
    """What tells the running kernel from every other; empty where the system does not tell."""
    try:
        with open(BOOT) as stream:
            return stream.read().strip()
    except OSError:
        return ""


def growth(before: Counters, after: Counters) -> Dict[str, Traffic]:
    """What came in between; an interface that came or went in between is left out."""
    return {
        name: Traffic(received - before[name][0], sent - before[name][1])
        for name, (received, sent) in sorted(after.items())
        if name in before
    }


def address_towards(peer: str) -> str:
    """This host's IPv4 address as `peer` sees it; OSError when there is no way. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, DISCARD))
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """The interface that has this IPv4 address; "" when none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                asked = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24] == socket.inet_aton(address):
                    return name
    return ""


def _words(path: str) -> int:
    with open(path) as stream:
        return int(stream.read())
