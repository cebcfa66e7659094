"""`single`: one process, no exchange."""

from adapters.pytorch.replica import ReplicaTrainer


class Single(ReplicaTrainer):
    """Trains alone."""

    grouped = False


TRAINER = Single
