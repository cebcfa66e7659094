"""MPI by itself, through mpi4py: any MPI library, no PyTorch."""

import platform
from typing import Any, List

import mpi4py
import numpy as np

from suite.worker.communicator import Communicator, Exchange, Pending
from suite.worker.contract import Joined, Unsupported

# As the trainer's: only one thread calls MPI. Must stand before the import of MPI.
mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402 - see above


class MPICommunicator(Communicator):
    """COMM_WORLD's ranks on a communicator of their own."""

    def start(self) -> Joined:
        self.comm = MPI.COMM_WORLD.Dup()
        library = MPI.Get_library_version().rstrip("\0").split(",")[0].strip().split("\n")[0]
        library = " ".join(library.split())  # MPICH sets it in columns
        versions = {"mpi4py": mpi4py.__version__, "mpi": library}
        versions.update(python=platform.python_version(), numpy=np.__version__)
        return Joined(self.comm.rank, self.comm.size, "mpi: " + library, versions)

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation not in EXCHANGES:
            raise Unsupported("mpi4py has no %s here; it has %s" % (operation, ", ".join(EXCHANGES)))
        number, mpi = TYPES.get(dtype, (None, MPI.DATATYPE_NULL))
        if mpi == MPI.DATATYPE_NULL:
            raise Unsupported("%s has no numbers of %s" % (MPI.Get_library_version().split(",")[0], dtype))
        made: Exchange = EXCHANGES[operation](self.comm, count, number, mpi)
        return made

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


class Collective(Exchange):
    """From one buffer into another; `blocking` and `starting` are methods of a communicator."""

    blocking = starting = ""

    def __init__(self, comm: Any, count: int, number: Any, mpi: Any) -> None:
        """`number` is the type of `count` numbers in NumPy, `mpi` in MPI."""
        given, taken = self.sizes(count, comm.size)
        self._given, self._taken, self._type, self._world = (
            np.zeros(given, number),
            np.zeros(taken, number),
            mpi,
            comm.size,
        )
        self._call, self._start = getattr(comm, self.blocking), getattr(comm, self.starting)
        # Written out once: to look at an array anew costs mpi4py a microsecond a call.
        self._arguments = self.arguments()

    @staticmethod
    def sizes(count: int, world: int) -> "tuple":
        """Numbers that a rank gives and takes."""
        return count, count

    def arguments(self) -> List[Any]:
        return [[self._given, len(self._given), self._type], [self._taken, len(self._taken), self._type]]

    def fill(self, values: np.ndarray) -> None:
        self._given[:] = values

    def run(self) -> None:
        self._call(*self._arguments)

    def begin(self) -> Pending:
        return Requested(self._start(*self._arguments))

    def result(self) -> np.ndarray:
        return self._taken.astype(np.float32, copy=False)


class AllReduce(Collective):
    """MPI_Allreduce."""

    blocking, starting = "Allreduce", "Iallreduce"


class AllGather(Collective):
    """MPI_Allgather."""

    blocking, starting = "Allgather", "Iallgather"

    @staticmethod
    def sizes(count: int, world: int) -> "tuple":
        return count // world, count

    def arguments(self) -> List[Any]:
        """The receiving side counts the numbers of one rank."""
        share = len(self._given)
        return [[self._given, share, self._type], [self._taken, share, self._type]]


class AllToAll(Collective):
    """MPI_Alltoall."""

    blocking, starting = "Alltoall", "Ialltoall"

    def arguments(self) -> List[Any]:
        """Both sides count the numbers of one rank."""
        share = len(self._given) // self._world
        return [[self._given, share, self._type], [self._taken, share, self._type]]


class ReduceScatter(Collective):
    """MPI_Reduce_scatter_block."""

    blocking, starting = "Reduce_scatter_block", "Ireduce_scatter_block"

    @staticmethod
    def sizes(count: int, world: int) -> "tuple":
        return count, count // world

    def arguments(self) -> List[Any]:
        """The giving side counts the numbers of one rank, too."""
        share = len(self._taken)
        return [[self._given, share, self._type], [self._taken, share, self._type]]


class Broadcast(Collective):
    """MPI_Bcast: in place; the others' numbers are cleared by it."""

    blocking, starting = "Bcast", "Ibcast"

    def arguments(self) -> List[Any]:
        """One buffer, from rank 0."""
        self._taken = self._given
        return [[self._given, len(self._given), self._type], 0]


class PointToPoint(Collective):
    """MPI_Send and MPI_Recv between rank 0 and the last one, there and back, as mpi4py's own ping-pong."""

    def __init__(self, comm: Any, count: int, number: Any, mpi: Any) -> None:
        self._given, self._taken = np.zeros(count, number), np.zeros(count, number)
        self._send, self._receive = comm.Send, comm.Recv
        self._first, self._last, self._other = comm.rank == 0, comm.rank == comm.size - 1, comm.size - 1
        # What the last rank sends back is what came.
        self._out = [self._given if self._first else self._taken, count, mpi]
        self._in = [self._taken, count, mpi]
        self._alone = comm.size == 1

    def run(self) -> None:
        if self._alone:
            self._taken[:] = self._given
        elif self._first:
            self._send(self._out, self._other, 0)
            self._receive(self._in, self._other, 0)
        elif self._last:
            self._receive(self._in, 0, 0)
            self._send(self._out, 0, 0)

    def begin(self) -> Pending:
        """There and back cannot be one request."""
        raise Unsupported("a message there and back waits for its first half")


# By name: NumPy's type and MPI's; NumPy has no bfloat16, and of the MPI libraries some have no float16.
TYPES = {
    "float32": (np.float32, MPI.FLOAT),
    "float16": (np.float16, getattr(MPI, "FLOAT16_T", MPI.DATATYPE_NULL)),
}

EXCHANGES = {
    "all-reduce": AllReduce,
    "broadcast": Broadcast,
    "reduce-scatter": ReduceScatter,
    "all-gather": AllGather,
    "all-to-all": AllToAll,
    "point-to-point": PointToPoint,
}
