"""The group of ranks that MPI connects.

Oldest Python: 3.6.
"""

import threading
import time
from functools import partial
from typing import Any, List

import mpi4py
import numpy as np

# One thread at a time calls MPI: a lower level spares its locks. Must stand before the import of MPI.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI  # noqa: E402 - see above

from adapters.caffempi.transfer import Way, all_reduce, library, push, star, two_level  # noqa: E402

POLL_S = 1e-4


class Ranks:
    """This process among the others; gradients travel on communicators of their own."""

    def __init__(self, strategy: str, node_ranks: int = 0) -> None:
        """`node_ranks`: how many ranks in a row make a node; 0: those that share memory."""
        self.rank, self.size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
        self.comm = MPI.COMM_WORLD.Dup()
        if node_ranks:
            self.node = self.comm.Split(self.rank // node_ranks, self.rank)
        else:
            self.node = self.comm.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        self.leaders = self.comm.Split(0 if self.node.rank == 0 else 1, self.rank)
        self.nodes = int(self.comm.bcast(self.leaders.size))
        self.lock = threading.Lock()  # to be held around calls of MPI while a server makes some
        self._strategy = strategy
        self._beside = strategy == "parameter_server_async"  # rank 0's server must not be kept waiting

    def way(self, far: bool) -> Way:
        """How the strategy sums a piece; `far`: over a wire."""
        if self._strategy == "two_level":
            return partial(two_level, self.node, self.leaders)
        if self._strategy.startswith("parameter_server"):
            return partial(star, self.comm)
        return partial(all_reduce if far else library, self.comm)

    @property
    def push(self) -> Way:
        """How a piece leaves for rank 0."""
        return partial(push, self.comm)

    def maximum(self, value: float) -> float:
        """The largest value over all ranks."""
        number = np.array([value])
        if not self._beside:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, number, MPI.MAX)
            return float(number[0])
        with self.lock:
            request = MPI.COMM_WORLD.Iallreduce(MPI.IN_PLACE, number, MPI.MAX)
        while not self.done([request]):
            time.sleep(POLL_S)
        return float(number[0])

    def done(self, requests: List[Any]) -> bool:
        """Whether all of them are, while another thread may call MPI too."""
        with self.lock:
            return bool(MPI.Request.Testall(requests))

    def leave(self) -> None:
        """Return the communicators and finalise MPI: all ranks must come here."""
        for comm in (self.leaders, self.node, self.comm):
            comm.Free()
        MPI.Finalize()

    @staticmethod
    def library() -> str:
        """The MPI library that really runs: "Open MPI v5.0.11"."""
        return MPI.Get_library_version().rstrip("\0").split(",")[0].strip().split("\n")[0]
