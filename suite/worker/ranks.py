"""Which rank am I? Every engine says it in variables of its own."""

import os
from typing import Mapping, NamedTuple, Optional

Rank = NamedTuple("Rank", [("rank", int), ("world", int), ("local_rank", int)])

# engine -> (rank, size, local rank); the first whose rank is set is taken
VARIABLES = (
    ("stagebench", "STAGEBENCH_RANK", "STAGEBENCH_WORLD", "STAGEBENCH_LOCAL_RANK"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def own_rank(environ: Optional[Mapping[str, str]] = None) -> Rank:
    """The rank this process was started as; a process started by nobody is rank 0 of 1."""
    environ = os.environ if environ is None else environ
    for _, rank, world, local in VARIABLES:
        if rank in environ:
            number = int(environ[rank])
            return Rank(number, int(environ.get(world, "1")), int(environ.get(local, number)))
    return Rank(0, 1, 0)
