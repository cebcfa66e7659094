"""MPI as CNTK uses it, and the distributed learners.

Oldest Python: 3.6.
"""

import ctypes
import os
from typing import Any, List, Mapping

import numpy as np

from adapters.cntk.framework import cntk as C  # noqa: N812 - the name everybody gives it
from suite.worker.trainer import Setup, Unavailable


class Group:
    """CNTK's communicator as one rank sees it."""

    def __init__(self) -> None:
        """Start MPI; without an mpiexec, or with MPICH's, this is rank 0 of 1. Unavailable: with Open MPI 5's."""
        check_launcher(library_version(), os.environ)
        self._communicator = C.distributed.mpi_communicator()
        self._workers = self._communicator.workers()
        self.rank, self.world = C.Communicator.rank(), C.Communicator.num_workers()
        self.transport = "mpi: " + library_version()

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

    def close(self) -> None:
        """Leave together; CNTK aborts where MPI is not finalised."""
        self._communicator.barrier()
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


def library_version() -> str:
    """What the loaded MPI says of itself, its first words."""
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL("libmpi.so.12").MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode().partition(",")[0]


def learner(setup: Setup, parameters: List[Any]) -> Any:
    """SGD for gradients summed over the global batch: v <- m*v + lr*(mean gradient + wd*w), w <- w - v.

    Rate and momentum are those of one global batch, also for a rank that updates by its own
    (block momentum): CNTK keeps the rate per sample the same.
    """
    lr, momentum, decay = setup.optimiser
    whole = setup.batch * setup.world
    return C.momentum_sgd(
        parameters,
        C.learning_parameter_schedule(lr, minibatch_size=whole),
        C.momentum_schedule(momentum, minibatch_size=whole),
        unit_gain=False,
        l1_regularization_weight=0.0,
        l2_regularization_weight=decay,  # CNTK multiplies it with the samples of the summed gradient
        gaussian_noise_injection_std_dev=0.0,
        gradient_clipping_threshold_per_sample=np.inf,
        gradient_clipping_with_truncation=True,
    )


def distributed(setup: Setup, local: Any) -> Any:
    """The learner that exchanges as the strategy says, around the local one."""
    if setup.strategy == "block_momentum":
        return C.distributed.block_momentum_distributed_learner(
            local,
            block_size=setup.knobs["block_steps"] * setup.batch * setup.world,
            block_momentum_as_time_constant=None,  # CNTK's choice: 1 - 1/ranks a block
            use_nestrov_momentum=True,
            reset_sgd_momentum_after_aggregation=True,
            block_learning_rate=1.0,
            distributed_after=0,
        )
    return C.distributed.data_parallel_distributed_learner(
        local,
        distributed_after=0,
        num_quantization_bits=1 if setup.strategy == "one_bit_sgd" else 32,
        use_async_buffered_parameter_update=False,
    )
