"""One process without MPI.

Oldest Python: 3.6.
"""

from adapters.cntk.base import CNTKTrainer


class Single(CNTKTrainer):
    """The local learner, nothing else."""


TRAINER = Single
