"""How many bytes every interface of this host carries: what the system has counted, InfiniBand's devices too."""

import contextlib
import glob
import os
from typing import Dict, Tuple

from suite.worker.messages import Traffic

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
    """What came in between; an interface that came or went in between does not count."""
    return {
        name: Traffic(received - before[name][0], sent - before[name][1])
        for name, (received, sent) in sorted(after.items())
        if name in before
    }


def _words(path: str) -> int:
    with open(path) as stream:
        return int(stream.read())
