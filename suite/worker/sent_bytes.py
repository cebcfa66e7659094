"""What this process has sent by TCP, on whatever interface: the kernel's count for each connection (TCP_INFO, tcp(7)).

Linux 4.19 or newer; elsewhere, and of another transport, nothing is counted; for shared memory see `shared_memory`.
"""

import contextlib
import os
import socket
import struct
from typing import Dict

BYTES_SENT = struct.Struct("200xQ")  # tcpi_bytes_sent in <linux/tcp.h>


def sent_bytes() -> Dict[str, int]:
    """Of each connection that is open now, by what the kernel calls it."""
    found = {}
    for name in os.listdir("/proc/self/fd") if hasattr(socket, "TCP_INFO") else ():
        with contextlib.suppress(OSError, struct.error):  # closed meanwhile, no TCP, an old kernel
            called = os.readlink("/proc/self/fd/" + name)
            if called.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as opened:
                    about = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                found[called] = BYTES_SENT.unpack_from(about)[0]
    return found


def since(before: Dict[str, int]) -> int:
    """All that was sent since `sent_bytes` returned this, by connections that are still open."""
    return sum(now - before.get(called, 0) for called, now in sent_bytes().items())
