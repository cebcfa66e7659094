"""The meeting of ranks outside of their framework: rank 0 listens, every other rank keeps one connection to it.

A meeting does what an engine cannot do itself: exchange addresses before any of the ranks starts its engine, or give
the largest of several numbers. Plain TCP between the hosts; standard library only. Every wait has its limit.
"""

import contextlib
import json
import socket
import struct
import time
from typing import Callable, Dict, List, Optional, Tuple

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
    found = b""
    until = time.monotonic() + seconds
    while len(found) < count:
        of.settimeout(max(until - time.monotonic(), 0.001))
        part = of.recv(count - len(found))
        if not part:
            raise ConnectionError("closed")
        found += part
    return found


PATIENCE = 120.0  # seconds for all ranks to connect: importing a framework takes some of them
LIMIT = 1800.0  # seconds of silence from a connected rank, as torch.distributed's: the watchdog acts long before
RETRY = 0.05
NUMBER = struct.Struct("!d")
LENGTH = struct.Struct("!I")
CHECK = "check that every rank runs (its log), was given this address, and that no firewall closes it"


class Meeting:
    """The connections of one rank, in a star around rank 0."""

    def __init__(
        self,
        rank: int,
        world: int,
        address: Address,
        listener: Optional[socket.socket] = None,
        patience: float = PATIENCE,
        limit: float = LIMIT,
    ) -> None:
        """Meet at (host, port); OSError names the address if a rank does not come within `patience` seconds.

        Rank 0 may bring a listener (see `listening`), from which the other ranks then learn the address.
        """
        self._rank = rank
        self._world = world
        self._address = address
        self._limit = limit
        self._peers: Dict[int, socket.socket] = {}
        if rank != 0:
            self._peers[0] = self._connected(time.monotonic() + patience)
        elif world > 1:
            with listener or listening(address) as door:
                try:
                    self._welcome(door, patience)
                except OSError:
                    self.close()
                    raise
        for peer in self._peers.values():
            peer.settimeout(limit)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def host(self) -> str:
        """The address of this rank on the route to rank 0."""
        return self._peers[0].getsockname()[0] if self._rank else self._address[0]

    def exchange(self, value: str, wait: Callable[[socket.socket], None] = lambda rank_0: None) -> List[str]:
        """Return the values of all ranks, in the ranks' order.

        A rank may `wait` otherwise than in here until the connection to rank 0 has something to read.
        """
        if self._rank:
            self._send_text(0, value)
            wait(self._peers[0])
            found: List[str] = json.loads(self._text(0))
            return found
        found = [value] + [self._text(rank) for rank in self._peers]
        for rank in self._peers:
            self._send_text(rank, json.dumps(found))
        return found

    def maximum(self, value: float) -> float:
        """Return the largest value over all ranks, also a barrier; OSError names a rank that has gone or is silent."""
        if self._rank:
            self._send(0, NUMBER.pack(value))
            return float(NUMBER.unpack(self._receive(0, NUMBER.size))[0])
        value = max([value] + [NUMBER.unpack(self._receive(rank, NUMBER.size))[0] for rank in self._peers])
        for rank in self._peers:
            self._send(rank, NUMBER.pack(value))
        return value

    def leave(self) -> None:
        """Close the connections when all ranks have called it.

        The first rank to leave may host a service that the other ranks still need.
        """
        self.maximum(0.0)
        self.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    # --- meeting ------------------------------------------------------------

    def _welcome(self, door: socket.socket, patience: float) -> None:
        """Accept the ranks; any other caller (a port scanner, a rank of another run) is sent away."""
        until, strays = time.monotonic() + patience, []  # type: float, List[str]
        while len(self._peers) < self._world - 1:
            door.settimeout(max(until - time.monotonic(), 0.001))
            try:
                peer, origin = door.accept()
            except socket.timeout:
                others = f"; others came from {', '.join(strays)}" if strays else ""
                raise OSError(
                    f"ranks {[rank for rank in range(1, self._world) if rank not in self._peers]} did not come to "
                    f"{self._at()} within {patience:g} s{others}; {CHECK}"
                )
            rank = greeted(peer, self._world)
            if rank is None or not 0 < rank < self._world:
                strays.append("%s:%d" % origin[:2])
                peer.close()
            elif rank in self._peers:
                peer.close()
                raise OSError(f"two processes came to {self._at()} as rank {rank}; end what an earlier run left")
            else:
                greet(peer, 0, self._world)
                self._peers[rank] = peer
        self._peers = {rank: self._peers[rank] for rank in sorted(self._peers)}

    def _connected(self, until: float) -> socket.socket:
        problem = "nobody listens"
        while time.monotonic() < until:
            try:
                return self._called(max(until - time.monotonic(), GREETING_LIMIT))
            except OSError as error:  # rank 0 does not listen yet, or has only just gone
                problem = str(error)
                time.sleep(RETRY)
        raise OSError(f"rank {self._rank} found no rank 0 at {self._at()}: {problem}; {CHECK}")

    def _called(self, seconds: float) -> socket.socket:
        peer = socket.create_connection(self._address, timeout=seconds)
        try:
            if peer.getsockname() == peer.getpeername():  # the system may lend us a free port of this host to call from
                raise OSError("nobody listens")
            greet(peer, self._rank, self._world)
            if greeted(peer, self._world, seconds) != 0:
                raise OSError(f"what answers there is no rank 0 of {self._world} ranks")
        except OSError:
            peer.close()
            raise
        return peer

    def _at(self) -> str:
        return "%s:%d" % self._address

    # --- talking ------------------------------------------------------------

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._peers[rank].sendall(data)
        except OSError as error:
            raise self._lost(rank, error)

    def _receive(self, rank: int, count: int) -> bytes:
        try:
            return exactly(self._peers[rank], count, self._limit)
        except OSError as error:
            raise self._lost(rank, error)

    def _lost(self, rank: int, error: OSError) -> OSError:
        silent = isinstance(error, socket.timeout)
        what = f"sent nothing for {self._limit:g} s" if silent else f"hung up ({error})"
        return ConnectionError(
            f"rank {rank} {what} while rank {self._rank} waited, met at {self._at()}; its own log says why"
        )

    def _send_text(self, rank: int, text: str) -> None:
        data = text.encode()
        self._send(rank, LENGTH.pack(len(data)) + data)

    def _text(self, rank: int) -> str:
        return self._receive(rank, LENGTH.unpack(self._receive(rank, LENGTH.size))[0]).decode()
