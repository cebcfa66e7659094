"""One process without MPI."""

from adapters.cntk.base import CNTKTrainer


class Single(CNTKTrainer):
    """The local learner, nothing else."""


TRAINER = Single
