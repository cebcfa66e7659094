"""One rank by itself."""

from adapters.caffempi.base import CaffeMPITrainer


class Single(CaffeMPITrainer):
    """Trains without MPI."""

    step = CaffeMPITrainer.step_alone

    def communicate(self) -> None:
        """Nobody is there to exchange with."""


TRAINER = Single
