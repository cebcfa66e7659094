"""The distributed key-value store as one worker sees it, and what it cannot do: the largest of several numbers.

Oldest Python: 3.6.
"""

import socket
import struct
from typing import Any, List

import mxnet as mx
import numpy as np

from adapters.mxnet.rendezvous import take_part

NUMBER = struct.Struct("!d")


class Group:
    """Workers joined by one store: there can be one a process, so it outlives a rebuilt network."""

    def __init__(self, kind: str) -> None:
        """Join as a worker of a "dist_sync" or "dist_async" store; waits for scheduler, servers and workers."""
        own = take_part("worker")
        self.store = mx.kv.create(kind)
        self.world, self._next = self.store.num_workers, 0
        self._meeting = Meeting(self.store, self.keys(1)[0], own)

    def keys(self, count: int) -> List[int]:
        """Keys that nobody has used: a key of a distributed store can be initialised once."""
        self._next += count
        return list(range(self._next - count, self._next))

    def maximum(self, value: float) -> float:
        """The largest value over all workers."""
        return self._meeting.maximum(value)

    def close(self) -> None:
        """Leave together: the last reference to the store waits for all workers and ends the servers."""
        self._meeting.maximum(0.0)
        self._meeting.close()
        self.store = None


class Meeting:
    """Sockets between the store's first worker and the others: a store sums, and an asynchronous one not even that."""

    def __init__(self, store: Any, key: int, own: str) -> None:
        """Tell everybody the first worker's address through the store, and connect."""
        self._peers: List[socket.socket] = []
        self._first = store.rank == 0
        with socket.socket() as listener:
            listener.bind((own if self._first else "", 0))
            listener.listen(store.num_workers)
            place = np.array([*socket.inet_aton(own), listener.getsockname()[1]], dtype=np.float32)
            told = mx.nd.zeros(place.shape)
            store.broadcast(key, mx.nd.array(place), out=told)
            numbers = [int(each) for each in told.asnumpy()]
            if self._first:
                self._peers = [listener.accept()[0] for _ in range(store.num_workers - 1)]
            else:
                address = ".".join(str(each) for each in numbers[:4]), numbers[4]
                self._peers = [socket.create_connection(address)]
        for peer in self._peers:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def maximum(self, value: float) -> float:
        """Everybody's largest, computed by the first worker."""
        if self._first:
            value = max([value] + [receive(peer) for peer in self._peers])
        for peer in self._peers:
            peer.sendall(NUMBER.pack(value))
        return value if self._first else receive(self._peers[0])

    def close(self) -> None:
        """Hang up."""
        for peer in self._peers:
            peer.close()


def receive(peer: socket.socket) -> float:
    """One number; ConnectionError when the other side is gone."""
    data = b""
    while len(data) < NUMBER.size:
        piece = peer.recv(NUMBER.size - len(data))
        if not piece:
            raise ConnectionError("a worker of the group has gone")
        data += piece
    value: float = NUMBER.unpack(data)[0]
    return value
