"""MPI alone, through mpi4py: any MPI library, no PyTorch."""

import platform
from typing import Any, List, NamedTuple

import mpi4py
import numpy as np

from stagebench.suite.worker.communicator import Communicator, Exchange, Pending
from stagebench.suite.worker.contract import Joined, Unsupported
from stagebench.suite.worker.rendezvous import named

# Only the main thread calls MPI; a trainer may have another one for it. Set before the import of MPI.
mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402 - see above

ALL, SHARE = "all", "share"  # of the numbers: all of them, or a rank's part


class MPICommunicator(Communicator):
    """COMM_WORLD's ranks on a communicator of their own."""

    def start(self) -> Joined:
        self.comm = MPI.COMM_WORLD.Dup()
        self._library = named(MPI.Get_library_version())
        versions = {"mpi4py": mpi4py.__version__, "mpi": self._library}
        versions.update(python=platform.python_version(), numpy=np.__version__)
        return Joined(self.comm.rank, self.comm.size, f"mpi: {self._library}", versions)

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        number, mpi = TYPES.get(dtype, (None, MPI.DATATYPE_NULL))
        if mpi == MPI.DATATYPE_NULL:
            raise Unsupported(f"{self._library} has no numbers of {dtype}")
        if operation == "point-to-point":
            return PointToPoint(self.comm, count, number, mpi)
        return Collective(CALLS[operation], self.comm, count, number, mpi)

    def maximum(self, value: float) -> float:
        number = np.array([value])
        self.comm.Allreduce(MPI.IN_PLACE, number, MPI.MAX)
        return float(number[0])

    def barrier(self) -> None:
        self.comm.Barrier()

    def close(self) -> None:
        """Return the communicator and finalise MPI: all ranks must come here."""
        self.comm.Free()
        MPI.Finalize()


class Requested(Pending):
    """An MPI request."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def test(self) -> bool:
        return bool(self._request.Test())

    def wait(self) -> None:
        self._request.Wait()


class Call(NamedTuple):
    """An operation's methods of a communicator, and what of `count` numbers on n ranks each buffer holds and counts."""

    blocking: str
    starting: str
    given: str = ALL  # how many numbers a rank fills
    taken: str = ALL  # how many are its result; "": what was filled is overwritten, and rank 0 is named instead
    counted: str = ALL  # the count that MPI receives, for both buffers


class Collective(Exchange):
    """From one buffer into another, or within one."""

    def __init__(self, call: Call, comm: Any, count: int, number: Any, mpi: Any) -> None:
        """`number` is the type of `count` numbers in NumPy, `mpi` in MPI."""
        sizes = {ALL: count, SHARE: count // comm.size}
        self._given = self._taken = np.zeros(sizes[call.given], number)
        self._call = getattr(comm, call.blocking)
        self._start = getattr(comm, call.starting)
        # Written out once: to look at an array anew costs mpi4py a microsecond a call.
        self._arguments: List[Any] = [[self._given, sizes[call.counted], mpi], 0]
        if call.taken:
            self._taken = np.zeros(sizes[call.taken], number)
            self._arguments[1] = [self._taken, sizes[call.counted], mpi]

    def fill(self, values: np.ndarray) -> None:
        self._given[:] = values

    def run(self) -> None:
        self._call(*self._arguments)

    def begin(self) -> Pending:
        return Requested(self._start(*self._arguments))

    def result(self) -> np.ndarray:
        return self._taken.astype(np.float32, copy=False)


CALLS = {
    "all-reduce": Call("Allreduce", "Iallreduce"),
    "broadcast": Call("Bcast", "Ibcast", taken=""),
    "reduce-scatter": Call("Reduce_scatter_block", "Ireduce_scatter_block", taken=SHARE, counted=SHARE),
    "all-gather": Call("Allgather", "Iallgather", given=SHARE, counted=SHARE),
    "all-to-all": Call("Alltoall", "Ialltoall", counted=SHARE),
}


class PointToPoint(Collective):
    """MPI_Send and MPI_Recv between rank 0 and the last one, there and back, as mpi4py's own ping-pong."""

    def __init__(self, comm: Any, count: int, number: Any, mpi: Any) -> None:
        super().__init__(Call("Send", "Isend"), comm, count, number, mpi)
        self._receive = comm.Recv
        self._first = comm.rank == 0
        self._last = comm.rank == comm.size - 1
        self._other = comm.size - 1
        # What the last rank sends back is what came.
        self._out = [self._given if self._first else self._taken, count, mpi]
        self._in = [self._taken, count, mpi]
        self._alone = comm.size == 1

    def run(self) -> None:
        if self._alone:
            self._taken[:] = self._given
        elif self._first:
            self._call(self._out, self._other, 0)
            self._receive(self._in, self._other, 0)
        elif self._last:
            self._receive(self._in, 0, 0)
            self._call(self._out, 0, 0)

    def begin(self) -> Pending:
        raise Unsupported("a message there and back waits for its first half")


# By name: NumPy's type and MPI's; NumPy has no bfloat16, and of the MPI libraries some have no float16.
TYPES = {"float32": (np.float32, MPI.FLOAT), "float16": (np.float16, getattr(MPI, "FLOAT16_T", MPI.DATATYPE_NULL))}
