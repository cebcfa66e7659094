"""One process without MPI."""

from adapters.cntk.base import CNTKTrainer

TRAINER = CNTKTrainer
