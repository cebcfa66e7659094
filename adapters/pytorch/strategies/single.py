"""`single`: one process, no exchange.

Oldest Python: 3.6.
"""

from adapters.pytorch.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """Trains alone."""

    grouped = False


TRAINER = SingleTrainer
