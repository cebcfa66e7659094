"""The meeting place of ranks, and the address, interface and port by which a rank is reached."""

import contextlib
import ctypes
import fcntl
import os
import random
import socket
import struct
from typing import List

from stagebench.suite.worker.machine import text_of
from stagebench.suite.worker.meeting import Address

VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
DISCARD = 9  # a port; nothing is sent there
SIOCGIFADDR = 0x8915
EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"  # from which the system takes a port if none is named
LOWEST, ATTEMPTS = 20000, 100  # ports below LOWEST are known services'


def meeting_place(who: str) -> Address:
    """Return (host, port) of rank 0, as the launcher has set them; ValueError if it has not.

    `who` meets there, a plural noun for the message: "Horovod's ranks".
    """
    for name in VARIABLES:
        if not os.environ.get(name):
            raise ValueError(
                f"{name} is not set, and {who} meet there; a launcher sets it, by hand: MASTER_ADDR=127.0.0.1 "
                "MASTER_PORT=29500"
            )
    host, port = (os.environ[name] for name in VARIABLES)
    if not port.isdigit():
        raise ValueError(f"MASTER_PORT is {port!r}, which is not the number of a port; a launcher sets it")
    return host, int(port)


def address_towards(peer: str) -> str:
    """Return this host's IPv4 address as `peer` sees it; OSError if there is no route. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, DISCARD))
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str:
    """Return the interface that has this IPv4 address; "" if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no address
                asked = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24] == socket.inet_aton(address):
                    return name
    return ""


def free_port(own: str = EPHEMERAL) -> int:
    """Return a TCP port that is free on this host now, if possible outside of the range that the system assigns from.

    A process that calls a port of the system's own range before another one listens there may be given that very port
    for its end: it then talks to itself. (A ps-lite server that does ends with "Check failed: is_scheduler_".)
    """
    for port in _outside(own):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _outside(own: str) -> List[int]:
    """Return some ports below the system's own range, by chance; none if it begins too low, or is not known."""
    limits = text_of(own).split()
    below = range(LOWEST, int(limits[0])) if limits and limits[0].isdigit() else range(0)
    return random.SystemRandom().sample(below, min(ATTEMPTS, len(below)))


def loaded(name: str) -> str:
    """Return the name and version of a shared library that this process has loaded, such as "libmpi.so.40"."""
    text = ctypes.create_string_buffer(8192)
    length = ctypes.c_int()
    ctypes.CDLL(name).MPI_Get_library_version(text, ctypes.byref(length))
    return named(text.value.decode())


def named(text: str) -> str:
    """Return name and version, "Open MPI v5.0.11", of a text of MPI_Get_library_version; MPICH sets it in columns."""
    return " ".join(text.rstrip("\0").partition("\n")[0].partition(",")[0].split())
