"""MPI as CNTK uses it: the ranks' group, and its sum without a training."""

import os
from typing import Any, List, Mapping

import numpy as np

from stagebench.adapters.cntk import machine
from stagebench.adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from stagebench.suite.worker.communicator import Communicator, Exchange
from stagebench.suite.worker.contract import Group, Joined, Unavailable, Unsupported
from stagebench.suite.worker.rendezvous import loaded

MPI = "libmpi.so.12"  # as CNTK names it


class MPIGroup(Group):
    """CNTK's communicator, as a rank uses it."""

    def __init__(self) -> None:
        """Start MPI: rank 0 of 1 without an mpiexec, or with MPICH's. Unavailable under Open MPI 5's."""
        library = loaded(MPI)
        check_launcher(library, os.environ)
        self._communicator = C.distributed.mpi_communicator()
        self._workers = self._communicator.workers()
        self.rank, self.world = C.Communicator.rank(), C.Communicator.num_workers()
        self.transport = f"mpi: {library}"

    def sum_in_place(self, views: List[Any]) -> None:
        """Replace each NDArrayView by its sum over the ranks, as the 32-bit learner does."""
        self._communicator.aggregate_in_place(views, self._workers)

    def maximum(self, value: float) -> float:
        """Return the largest value of all ranks: CNTK only sums, so each rank fills one element."""
        places = np.zeros(self.world)
        places[self.rank] = value
        view = C.NDArrayView.from_data(places)
        self.sum_in_place([view])
        return float(view.asarray().max())

    def barrier(self) -> None:
        self._communicator.barrier()

    def close(self) -> None:
        """Leave together; CNTK aborts if MPI is not finalised."""
        self.barrier()
        C.Communicator.finalize()


def check_launcher(library: str, environ: Mapping[str, str]) -> None:
    """Raise Unavailable if MPI would die at its start without saying why."""
    engine = environ.get("OMPI_VERSION", "")  # set by Open MPI since 5.0
    if engine and not library.startswith(f"Open MPI v{engine.split('.')[0]}."):
        raise Unavailable(
            f"this rank was started by the mpiexec of Open MPI {engine}, and CNTK uses the library {library}, "
            "which cannot join it; name that library's own mpiexec with STAGEBENCH_MPIEXEC (Debian's openmpi-bin: "
            "/usr/bin/mpiexec)"
        )


class CNTKCommunicator(Communicator):
    """A rank of CNTK's MPI group."""

    def start(self) -> Joined:
        machine.prepare(self.setup)
        self.group = MPIGroup()
        return Joined(self.group.rank, self.group.world, self.group.transport, machine.versions())

    def exchange(self, operation: str, count: int, dtype: str = "float32") -> Exchange:
        if operation != "all-reduce":
            raise Unsupported(f"CNTK's communicator has no {operation}; it has all-reduce")
        return Sum(self.group, count)


class Sum(Exchange):
    """A sum in place, in CNTK's own memory."""

    def __init__(self, group: MPIGroup, count: int) -> None:
        self._group = group
        self.fill(np.zeros(count, dtype=np.float32))

    def fill(self, values: np.ndarray) -> None:
        self._views = [C.NDArrayView.from_data(np.ascontiguousarray(values))]

    def run(self) -> None:
        self._group.sum_in_place(self._views)

    def result(self) -> np.ndarray:
        return np.array(self._views[0].asarray(), dtype=np.float32)
