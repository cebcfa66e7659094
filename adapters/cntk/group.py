"""MPI as CNTK uses it."""

import os
from typing import Any, List, Mapping

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.contract import Group, Unavailable
from suite.worker.mpi_library import loaded

MPI = "libmpi.so.12"  # as CNTK names it


class MPIGroup(Group):
    """CNTK's communicator as one rank sees it."""

    def __init__(self) -> None:
        """Start MPI; without an mpiexec, or with MPICH's, this is rank 0 of 1. Unavailable: with Open MPI 5's."""
        library = loaded(MPI)
        check_launcher(library, os.environ)
        self._communicator = C.distributed.mpi_communicator()
        self._workers = self._communicator.workers()
        self.rank, self.world = C.Communicator.rank(), C.Communicator.num_workers()
        self.transport = "mpi: " + library

    def sum_in_place(self, views: List[Any]) -> None:
        """Replace each NDArrayView by its sum over the ranks, as the 32-bit learner does."""
        self._communicator.aggregate_in_place(views, self._workers)

    def maximum(self, value: float) -> float:
        """The largest value over all ranks: CNTK only sums, so each rank fills a place of its own."""
        places = np.zeros(self.world)
        places[self.rank] = value
        view = C.NDArrayView.from_data(places)
        self.sum_in_place([view])
        return float(view.asarray().max())

    def barrier(self) -> None:
        self._communicator.barrier()

    def close(self) -> None:
        """Leave together; CNTK aborts where MPI is not finalised."""
        self.barrier()
        C.Communicator.finalize()


def check_launcher(library: str, environ: Mapping[str, str]) -> None:
    """Unavailable where MPI would die when it starts, with many words and none about why."""
    engine = environ.get("OMPI_VERSION", "")  # Open MPI tells since 5.0
    if engine and not library.startswith("Open MPI v%s." % engine.split(".")[0]):
        raise Unavailable(
            "this rank was started by the mpiexec of Open MPI %s, and CNTK uses the library %s, which cannot join it; "
            "name that library's own mpiexec with STAGEBENCH_MPIEXEC (Debian's openmpi-bin: /usr/bin/mpiexec)"
            % (engine, library)
        )
