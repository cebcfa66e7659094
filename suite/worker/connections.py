"""The TCP connections that this process has open: its own address and the other's, by the kernel's tables (proc(5))."""

import contextlib
import ipaddress
import os
import struct
from typing import List, Set, Tuple

from suite.worker.messages import Connection

TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
OPEN = "01"  # TCP_ESTABLISHED
MOST = 1000  # that a record holds: nobody reads more


def connections(tables: Tuple[str, ...] = TABLES) -> List[Connection]:
    """Those of this process alone; none where the system does not report them: that costs no measurement."""
    found = set()  # type: Set[Connection]
    with contextlib.suppress(OSError, ValueError, IndexError):
        sockets = _sockets()
        for path in filter(os.path.exists, tables):
            with open(path) as table:
                for line in table.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == OPEN and fields[9] in sockets:
                        found.add(Connection(_address(fields[1]), _address(fields[2])))
    return sorted(found)[:MOST]


def _sockets() -> Set[str]:
    """The inodes of all that are open here."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # closed meanwhile
            kind, _, inode = os.readlink("/proc/self/fd/" + name).partition(":")
            if kind == "socket":
                found.add(inode.strip("[]"))
    return found


def _address(written: str) -> str:
    """`0100007F:1F90`, 32-bit words in the machine's own order and a port, as 127.0.0.1:8080."""
    words, port = written.split(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    shown = "[%s]" if address.version == 6 else "%s"
    return "%s:%d" % (shown % address, int(port, 16))
