"""The operations of a `Meeting` on one socket: listen, greet, receive within a time.

Standard library only.
"""

import contextlib
import socket
import struct
import time
from typing import Optional, Tuple

Address = Tuple[str, int]

GREETING_LIMIT = 5.0  # seconds for a connection to identify itself as a rank, which it does at once
GREETING = struct.Struct("!16sII")  # WORD, rank, ranks in all
WORD = b"stagebench-1"


def listening(address: Address) -> socket.socket:
    """Return rank 0's listener at a port, on all of this host's addresses; port 0: a free one (see getsockname())."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind(("", address[1]))
    except OSError as error:
        door.close()
        raise OSError("rank 0 cannot listen at %s:%d: %s; choose another port" % (address + (error,)))
    door.listen(128)
    return door


def greet(peer: socket.socket, rank: int, world: int) -> None:
    """Send this rank's greeting; the next call that receives from a peer notices that it has gone."""
    with contextlib.suppress(OSError):
        peer.sendall(GREETING.pack(WORD, rank, world))


def greeted(peer: socket.socket, world: int, seconds: float = GREETING_LIMIT) -> Optional[int]:
    """Return the rank that calls; None for a caller that does not greet in time as one of `world` ranks."""
    try:
        word, rank, ranks = GREETING.unpack(exactly(peer, GREETING.size, seconds))
    except OSError:
        return None
    return int(rank) if word.rstrip(b"\0") == WORD and ranks == world else None


def exactly(of: socket.socket, count: int, seconds: float) -> bytes:
    """Receive `count` bytes; socket.timeout if they do not come in time, ConnectionError if the other side has gone."""
    found, until = b"", time.monotonic() + seconds
    while len(found) < count:
        of.settimeout(max(until - time.monotonic(), 0.001))
        part = of.recv(count - len(found))
        if not part:
            raise ConnectionError("closed")
        found += part
    return found
