"""MPI as CNTK uses it, and the trainers of several ranks: learners that exchange within their update."""

import os
from typing import Any, Dict, List, Mapping

import numpy as np

from adapters.cntk.base import CNTKTrainer
from adapters.cntk.machine import cntk as C  # noqa: N812 - the usual name
from suite.worker.contract import Group, Joined, Unavailable
from suite.worker.rendezvous import loaded

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
        self.transport = "mpi: " + library

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
    if engine and not library.startswith("Open MPI v%s." % engine.split(".")[0]):
        raise Unavailable(
            "this rank was started by the mpiexec of Open MPI %s, and CNTK uses the library %s, which cannot join it; "
            "name that library's own mpiexec with STAGEBENCH_MPIEXEC (Debian's openmpi-bin: /usr/bin/mpiexec)"
            % (engine, library)
        )


class DistributedTrainer(CNTKTrainer):
    """A rank of CNTK's MPI group."""

    def start(self) -> Joined:
        versions = super().start().versions
        self.group = MPIGroup()
        return Joined(self.group.rank, self.group.world, self.group.transport, versions)

    def data_parallel_learner(self, local: Any, bits: int) -> Any:
        """Return CNTK's learner that sums gradients of `bits` bits, around a local learner."""
        return C.distributed.data_parallel_distributed_learner(
            local, distributed_after=0, num_quantization_bits=bits, use_async_buffered_parameter_update=False
        )


class ExchangeInUpdate(DistributedTrainer):
    """A strategy whose learner exchanges inside its update: the stage `update` includes the exchange."""

    def update(self) -> None:
        C.cntk_py.DistributedLearner._update(self._learner, self._gradients, self._information())
        self._forget()

    def notes(self) -> Dict[str, Any]:
        return dict(super().notes(), exchange="inside the learner's update, the staged pass's too")

    def _information(self) -> Any:
        about = C.cntk_py.MinibatchInfo()
        about.at_end_of_data = about.at_end_of_sweep = False
        about.number_of_samples = self._samples
        about.training_loss_value = C.NDArrayView.from_data(np.array(self._last_loss * self._samples, self._dtype))
        about.eval_criterion_value = C.NDArrayView.from_data(np.array(0, self._dtype))
        return about
