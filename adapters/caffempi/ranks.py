"""The group of ranks that MPI connects.

Oldest Python: 3.6.
"""

from typing import Any

import mpi4py
import numpy as np

# Only the training thread calls MPI: a lower level spares its locks. Must stand before the import of MPI.
mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402 - see above

from adapters.caffempi.transfer import TRANSFERS  # noqa: E402


class Ranks:
    """This process among the others; gradients travel on a communicator of their own."""

    def __init__(self, aggregation: str) -> None:
        """`aggregation` is "allreduce" or "parameter_server"."""
        self.rank, self.size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
        self.comm = MPI.COMM_WORLD.Dup()
        self.transfer: Any = TRANSFERS[aggregation]

    def maximum(self, value: float) -> float:
        """The largest value over all ranks."""
        number = np.array([value])
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, number, MPI.MAX)
        return float(number[0])

    def leave(self) -> None:
        """Return the communicator and finalise MPI: all ranks must come here."""
        self.comm.Free()
        MPI.Finalize()

    @staticmethod
    def library() -> str:
        """The MPI library that really runs: "Open MPI v5.0.11"."""
        return MPI.Get_library_version().rstrip("\0").split(",")[0].strip().split("\n")[0]
