"""Where ranks meet: rank 0 listens at MASTER_ADDR:MASTER_PORT, every other rank keeps one connection to it.

TensorFlow wants every worker's address before any of them starts, and its collectives know
no maximum; both go this way, over plain TCP on the host.

Oldest Python: 3.6; standard library only.
"""

import os
import socket
import struct
import time
from typing import Dict, List

PATIENCE = 120.0  # seconds for all ranks to have come: importing a framework takes some of them
RETRY = 0.05
NUMBER = struct.Struct("!d")
LENGTH = struct.Struct("!I")


class Meeting:
    """One rank's connections, in a star around rank 0."""

    def __init__(self, rank: int, world: int) -> None:
        """Meet; ValueError when the launcher has not said where, OSError when somebody does not come."""
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            raise ValueError(
                "%s is not set, and 'multiworker_mirrored' meets there; a launcher sets it, by hand: "
                "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500" % missing[0]
            )
        self._rank, self._world = rank, world
        self._at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._others: List[socket.socket] = []  # of rank 0, in the ranks' order
        self._first = None
        if rank == 0:
            self._listen()
        else:
            self._first = self._connected()
            send(self._first, str(rank).encode())

    def addresses(self) -> List[str]:
        """host:port of every rank, in order: a port that is free there now, on the way that leads to rank 0."""
        if self._first is None:
            found = ["%s:%d" % (self._at[0], free_port())]
            found += [receive(other).decode() for other in self._others]
            for other in self._others:
                send(other, " ".join(found).encode())
            return found
        send(self._first, ("%s:%d" % (self._first.getsockname()[0], free_port())).encode())
        return receive(self._first).decode().split()

    def maximum(self, value: float) -> float:
        """The largest value over all ranks; ConnectionError when one has gone."""
        if self._first is None:
            value = max([value] + [NUMBER.unpack(exactly(other, NUMBER.size))[0] for other in self._others])
            for other in self._others:
                other.sendall(NUMBER.pack(value))
            return value
        self._first.sendall(NUMBER.pack(value))
        return float(NUMBER.unpack(exactly(self._first, NUMBER.size))[0])

    def close(self) -> None:
        """Hang up."""
        for each in self._others + ([self._first] if self._first is not None else []):
            each.close()

    def _listen(self) -> None:
        if self._world == 1:
            return
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", self._at[1]))
            listener.listen(self._world)
            listener.settimeout(PATIENCE)
            come: Dict[int, socket.socket] = {}
            while len(come) < self._world - 1:
                try:
                    other = listener.accept()[0]
                except socket.timeout:
                    absent = sorted(set(range(1, self._world)) - set(come))
                    raise OSError("ranks %s did not come to %s:%d within %g s" % ((absent,) + self._at + (PATIENCE,)))
                other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                come[int(receive(other))] = other
        self._others = [come[rank] for rank in sorted(come)]

    def _connected(self) -> socket.socket:
        until = time.time() + PATIENCE
        while True:
            try:
                first = socket.create_connection(self._at, timeout=PATIENCE)
                break
            except OSError as error:
                if time.time() > until:
                    raise OSError("rank %d found no rank 0 at %s:%d: %s" % ((self._rank,) + self._at + (error,)))
                time.sleep(RETRY)
        first.settimeout(None)  # from here on a slow rank is the watchdog's affair
        first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return first


def free_port() -> int:
    """A TCP port that is free on this host now; the system does not give it out again at once."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def send(to: socket.socket, text: bytes) -> None:
    """A length and the bytes."""
    to.sendall(LENGTH.pack(len(text)) + text)


def receive(of: socket.socket) -> bytes:
    """What `send` sent."""
    return exactly(of, LENGTH.unpack(exactly(of, LENGTH.size))[0])


def exactly(of: socket.socket, count: int) -> bytes:
    """That many bytes; ConnectionError when the other side has gone."""
    found = b""
    while len(found) < count:
        part = of.recv(count - len(found))
        if not part:
            raise ConnectionError("a rank hung up; its own log says why")
        found += part
    return found
