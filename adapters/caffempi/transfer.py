"""The ranks that MPI connects, and the transfer of a piece of the gradient between them.

A transfer is a generator of steps; each yields the requests that must be done before the next one. An `InFlight` tests
the requests and resumes the steps, so that many pieces travel at once and no rank waits inside. If a network is between
the ranks, messages go from rank to rank, tagged with the piece's number: Open MPI's non-blocking all-reduce on two
ranks sends everything in one direction, then the sum in the other, and so uses half of the wire's rate.
"""

from typing import Any, Callable, Iterator, List, Optional

import mpi4py
import numpy as np

from stagebench.suite.worker.contract import Group
from stagebench.suite.worker.rendezvous import named

# One thread at a time calls MPI: a lower level spares its locks. Set before the import of MPI, which all of
# the trainer's modules take from here.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI  # noqa: E402 - see above

__all__ = ["MPI", "InFlight", "Ranks"]

TAGS = 32768  # the least upper bound of a tag that MPI grants
SMALL = 65536  # bytes: below it start-ups count, and the library's all-reduce has the fewest

Steps = Iterator[List[Any]]  # requests
Transfer = Callable[[np.ndarray, int], Steps]  # piece, number; all ranks begin their pieces in the same order


class Ranks(Group):
    """This process among the others; gradients travel on communicators of their own."""

    def __init__(self, node_ranks: Optional[int] = None) -> None:
        """`node_ranks`: how many ranks in a row make a node; None: those that share memory."""
        self.rank = MPI.COMM_WORLD.Get_rank()
        self.size = MPI.COMM_WORLD.Get_size()
        self.comm = MPI.COMM_WORLD.Dup()
        if node_ranks:
            self.node = self.comm.Split(self.rank // node_ranks, self.rank)
        else:
            self.node = self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        # The nodes' first ranks (and, unused, all others).
        self.leaders: Any = self.comm.Split(0 if self.node.rank == 0 else 1, self.rank)
        self.nodes = int(self.comm.bcast(self.leaders.size))
        self.library = named(MPI.Get_library_version())

    def maximum(self, value: float) -> float:
        number = np.array([value])
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, number, MPI.MAX)
        return float(number[0])

    def close(self) -> None:
        """Return the communicators and finalise MPI."""
        for comm in (self.leaders, self.node, self.comm):
            comm.Free()
        MPI.Finalize()


class InFlight:
    """A piece on its way."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._requests = next(steps, [])

    def test(self) -> bool:
        while MPI.Request.Testall(self._requests):
            requests = next(self._steps, None)
            if requests is None:
                return True
            self._requests = requests
        return False

    def cancel(self) -> None:
        """Take back receives that no rank sends to."""
        for request in self._requests:
            request.Cancel()
            request.Wait()


def library_all_reduce(comm: Any, piece: np.ndarray, number: int) -> Steps:
    """Summed in place over all ranks by MPI's own all-reduce."""
    yield [comm.Iallreduce(MPI.IN_PLACE, piece)]


def waiting_all_reduce(comm: Any, piece: Any, number: int) -> Steps:
    """Sum by MPI's own all-reduce and wait: a CUDA-aware library need not be so for sums begun without waiting."""
    comm.Allreduce(MPI.IN_PLACE, piece)
    yield []


def all_reduce(comm: Any, piece: np.ndarray, number: int) -> Steps:
    """Summed in place over all ranks, whose memory is not shared."""
    way = library_all_reduce if piece.nbytes < SMALL else ring
    return way(comm, piece, number)


def ring(comm: Any, piece: np.ndarray, number: int) -> Steps:
    """An all-reduce that fills the wire both ways: parts are summed around the ring, then the sums go round.

    P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", 2009.
    """
    size = comm.size
    rank = comm.rank
    tag = number % TAGS
    before = (rank - 1) % size
    after = (rank + 1) % size
    parts = np.array_split(piece, size)
    inbox = np.empty_like(parts[0])
    for step in range(size - 1):
        given = parts[(rank - step) % size]
        taken = parts[(rank - step - 1) % size]
        box = inbox[: len(taken)]
        yield [comm.Irecv(box, before, tag), comm.Isend(given, after, tag)]
        taken += box
    for step in range(size - 1):
        given = parts[(rank + 1 - step) % size]
        taken = parts[(rank - step) % size]
        yield [comm.Irecv(taken, before, tag), comm.Isend(given, after, tag)]


def star(comm: Any, piece: np.ndarray, number: int, between: Optional[Steps] = None) -> Steps:
    """Push to rank 0, which sums in rank order, takes the steps `between`, and sends the result back.

    Rank 0 holds the server's role and its worker's, as MXNet's `dist_sync` key-value
    store does with `update_on_kvstore=False`: the server aggregates, workers update.
    """
    tag = number % TAGS
    if comm.rank:
        yield [comm.Isend(piece, 0, tag)]
        yield [comm.Irecv(piece, 0, tag)]
        return
    inbox = [np.empty_like(piece) for _ in range(1, comm.size)]
    yield [comm.Irecv(box, rank, tag) for rank, box in enumerate(inbox, 1)]
    for box in inbox:
        piece += box
    yield from between or ()
    yield [comm.Isend(piece, rank, tag) for rank in range(1, comm.size)]


def two_level(node: Any, leaders: Any, piece: np.ndarray, number: int) -> Steps:
    """Summed by the first rank of a node, over the nodes among these, and spread in the node again.

    `leaders` is used on the node's first rank only.
    """
    return star(node, piece, number, ring(leaders, piece, number))


def push(comm: Any, piece: np.ndarray, number: int) -> Steps:
    """Send to rank 0, without an answer."""
    yield [comm.Isend(piece, 0, number % TAGS)]
