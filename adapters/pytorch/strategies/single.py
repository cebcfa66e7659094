"""`single`: one process, no exchange."""

from adapters.pytorch.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """Trains alone."""

    grouped = False


TRAINER = SingleTrainer
