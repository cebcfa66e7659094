"""Where TensorFlow's workers meet, and where each of them will serve: it wants all addresses before any starts.

Oldest Python: 3.6; standard library only.
"""

import os
import socket
from typing import Tuple


def meeting_place() -> Tuple[str, int]:
    """(host, port) of rank 0; ValueError when the launcher has not said it."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ValueError(
            "%s is not set, and TensorFlow's ranks meet there; a launcher sets it, by hand: "
            "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500" % missing[0]
        )
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def free_port() -> int:
    """A TCP port that is free on this host now; the system does not give it out again at once."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
