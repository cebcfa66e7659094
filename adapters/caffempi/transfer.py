"""One piece of the gradient on its way: summed over all ranks, in place, without waiting.

Oldest Python: 3.6.
"""

from typing import Any, List

import numpy as np
from mpi4py import MPI

TAGS = 32768  # the least upper bound of a tag that MPI grants


class AllReduce:
    """A non-blocking all-reduce."""

    def __init__(self, comm: Any, piece: np.ndarray, number: int) -> None:
        """Start; all ranks start their pieces in the same order."""
        self._request = comm.Iallreduce(MPI.IN_PLACE, piece)

    def test(self) -> bool:
        """Make progress; True when the sum has arrived."""
        return bool(self._request.Test())

    def wait(self) -> None:
        """Return when the sum has arrived."""
        self._request.Wait()

    @staticmethod
    def now(comm: Any, piece: np.ndarray, number: int) -> None:
        """The same when nothing is left to hide it behind: blocking collectives are the faster ones."""
        comm.Allreduce(MPI.IN_PLACE, piece)


class ParameterServer:
    """Push to rank 0, which sums in rank order and sends the sum back; every rank then updates.

    Rank 0 holds the server's role beside its worker's, as MXNet's `dist_sync` key-value
    store does with `update_on_kvstore=False`: the server aggregates, workers update.
    """

    def __init__(self, comm: Any, piece: np.ndarray, number: int) -> None:
        """Start; `number` tells pieces apart that are on their way together."""
        self._comm, self._piece, self._tag = comm, piece, number % TAGS
        self._answering = False
        self._inbox: List[np.ndarray] = []
        if comm.rank == 0:
            self._inbox = [np.empty_like(piece) for _ in range(1, comm.size)]
            self._requests = [comm.Irecv(box, rank, self._tag) for rank, box in enumerate(self._inbox, 1)]
        else:
            self._requests = [comm.Isend(piece, 0, self._tag)]

    def test(self) -> bool:
        """Make progress; True when the sum has arrived (on rank 0: has been taken by everyone)."""
        if not MPI.Request.Testall(self._requests):
            return False
        if self._answering:
            return True
        self._answer()
        return bool(MPI.Request.Testall(self._requests))

    def wait(self) -> None:
        """Return when the sum has arrived."""
        MPI.Request.Waitall(self._requests)
        if not self._answering:
            self._answer()
            MPI.Request.Waitall(self._requests)

    def _answer(self) -> None:
        self._answering = True
        if self._comm.rank:
            self._requests = [self._comm.Irecv(self._piece, 0, self._tag)]
            return
        for box in self._inbox:
            self._piece += box
        self._requests = [self._comm.Isend(self._piece, rank, self._tag) for rank in range(1, self._comm.size)]

    @classmethod
    def now(cls, comm: Any, piece: np.ndarray, number: int) -> None:
        """The same, waited for."""
        cls(comm, piece, number).wait()


TRANSFERS = {"allreduce": AllReduce, "parameter_server": ParameterServer}
