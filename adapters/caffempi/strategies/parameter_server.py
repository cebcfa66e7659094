"""A synchronous parameter server: rank 0 sums everybody's gradients, every rank updates (MXNet's dist_sync)."""

from functools import partial

from adapters.caffempi.distributed import SynchronousTrainer
from adapters.caffempi.transfer import Transfer, star


class ParameterServer(SynchronousTrainer):
    """Pushes to rank 0, and pulls the sum from there."""

    def transfer(self) -> Transfer:
        return partial(star, self.group.comm)
