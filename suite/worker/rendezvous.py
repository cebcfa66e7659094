"""Where ranks meet, and by which address, interface and port a rank is reached.

Standard library only.
"""

import contextlib
import fcntl
import os
import socket
import struct

from suite.worker.sockets import Address

VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
DISCARD = 9  # a port; nothing is sent there
SIOCGIFADDR = 0x8915


def meeting_place(who: str) -> Address:
    """(host, port) of rank 0, as the launcher has set them; ValueError where it has not.

    `who` meets there, a plural noun for the message: "Horovod's ranks".
    """
    for name in VARIABLES:
        if not os.environ.get(name):
            raise ValueError(
                "%s is not set, and %s meet there; a launcher sets it, by hand: "
                "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500" % (name, who)
            )
    host, port = (os.environ[name] for name in VARIABLES)
    if not port.isdigit():
        raise ValueError("MASTER_PORT is %r, which is not the number of a port; a launcher sets it" % port)
    return host, int(port)


def address_towards(peer: str) -> str:
    """This host's IPv4 address as `peer` sees it; OSError when there is no route. Nothing is sent."""
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


def free_port() -> int:
    """A TCP port that is free on this host now; the system does not give it out again at once."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
