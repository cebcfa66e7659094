"""Synchronous training: the gradients of all ranks are summed in one of three ways, and every rank updates."""

from functools import partial
from typing import Iterable, List

from stagebench.adapters.caffempi.distributed import DistributedTrainer
from stagebench.adapters.caffempi.exchange import FAR, Pace
from stagebench.adapters.caffempi.net import Group, Span
from stagebench.adapters.caffempi.transfer import (
    Transfer,
    all_reduce,
    library_all_reduce,
    star,
    two_level,
    waiting_all_reduce,
)
from stagebench.suite.worker.contract import Batch
from stagebench.suite.worker.trainer import Arrays

LARGEST = 2.0**30  # by how much repeated sums may grow before they are divided again


class SynchronousTrainer(DistributedTrainer):
    """Wait-free back-propagation: the gradients of all ranks are summed, and every rank updates.

    The gradient that a net computes is divided by the number of ranks already: sums are averages.
    """

    def open_exchange(self, groups: List[Group], pace: Pace) -> None:
        super().open_exchange(groups, pace)
        self._sums = 0  # since the last backward

    def backward(self) -> None:
        """Gradients that have not been summed yet."""
        super().backward()
        self._sums = 0

    def communicate(self) -> None:
        """Sum all groups at once, timed."""
        # Without a new backward (pass `comm_only`) every sum is larger by the number of ranks.
        if self.setup.world ** float(self._sums) > LARGEST:
            self._average()
        self._exchange.run(self._clock.communication)
        self._sums += 1

    def update(self) -> None:
        self._average()
        super().update()

    def step(self, batch: Batch) -> None:
        """Groups leave as they are complete and are applied as they arrive; if they are clipped, when all have."""
        self._net.forward(batch.inputs, batch.labels)
        self._net.backward(self._exchange.layer_done)
        self._solver.begin()
        spans: Iterable[Span] = self._exchange.finish()
        if self.setup.optimiser.clip:
            spans = list(spans)
            self._solver.clip()
        for span in spans:
            self._solver.update(span)

    def gradients(self) -> Arrays:
        """Averaged after `communicate`, however often that was called."""
        self._average()
        return super().gradients()

    def _average(self) -> None:
        """Divide away what sums after the first one added."""
        if self._sums > 1:
            self._arena.gradients.mul_(float(self.setup.world) ** (1 - self._sums))
            self._sums = 1


class DataParallel(SynchronousTrainer):
    """Sums around a ring over a wire, by the MPI library where memory is shared or is a GPU's."""

    def transfer(self) -> Transfer:
        if self._staging == "none":
            return partial(waiting_all_reduce, self.group.comm)
        return partial(all_reduce if self._pace is FAR else library_all_reduce, self.group.comm)


class TwoLevel(SynchronousTrainer):
    """Sums within nodes and between them."""

    def transfer(self) -> Transfer:
        return partial(two_level, self.group.node, self.group.leaders)


class ParameterServer(SynchronousTrainer):
    """Pushes to rank 0, and pulls the sum from there."""

    def transfer(self) -> Transfer:
        return partial(star, self.group.comm)
