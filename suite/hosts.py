"""Which host is this one?"""

import socket

LOOPBACK = "127.0.0.1"


def here(host: str) -> bool:
    """Whether a name or address that a person wrote means this machine."""
    return host in ("localhost", LOOPBACK, socket.gethostname(), socket.getfqdn())
