"""The group of ranks that MPI connects."""

from typing import Any, Optional

import mpi4py
import numpy as np

from suite.worker.contract import Group
from suite.worker.mpi_library import named

# One thread at a time calls MPI: a lower level spares its locks. Must stand before the import of MPI, which all of
# the trainer's modules take from here.
mpi4py.rc.thread_level = "serialized"

from mpi4py import MPI  # noqa: E402 - see above

__all__ = ["MPI", "Ranks"]


class Ranks(Group):
    """This process among the others; gradients travel on communicators of their own."""

    def __init__(self, node_ranks: Optional[int] = None) -> None:
        """`node_ranks`: how many ranks in a row make a node; None: those that share memory."""
        self.rank, self.size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
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
