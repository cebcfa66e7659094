"""Every rank a replica; gradients are summed on each node's first rank, then over the nodes."""

from functools import partial

from adapters.caffempi.distributed import SynchronousTrainer
from adapters.caffempi.transfer import Transfer, two_level


class TwoLevel(SynchronousTrainer):
    """Sums within nodes and between them."""

    def transfer(self) -> Transfer:
        return partial(two_level, self.group.node, self.group.leaders)
