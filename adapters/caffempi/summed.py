"""Synchronous training: the gradients of all ranks are summed, and every rank updates.

The gradient that a net computes is divided by the number of ranks already: sums are averages.

Oldest Python: 3.6.
"""

from typing import Any, Dict, Optional

from adapters.caffempi.alone import Alone, Timed
from adapters.caffempi.exchange import Exchange
from adapters.caffempi.net import Net
from suite.worker.contract import Optimiser

LARGEST = 2.0**30  # by how much repeated sums may grow before they are divided again


class Summed(Alone):
    """Wait-free back-propagation over an exchange that sums."""

    def __init__(self, net: Net, rule: Optimiser, exchange: Exchange, world: int, told: Dict[str, Any]) -> None:
        """`exchange` is over the net's gradients; `told` are its notes."""
        super().__init__(net, rule)
        self._exchange, self._world, self._told = exchange, world, told
        self._sums = 0

    def step(self) -> None:
        """Groups leave as they are complete and are applied as they arrive."""
        self._net.backward(self._exchange.lap)
        self._solver.begin()
        for span in self._exchange.finish():
            self._solver.update(span)

    def begin(self) -> None:
        """Not summed yet."""
        self._sums = 0

    def communicate(self, timed: Optional[Timed]) -> None:
        """All groups at once."""
        # Without a new backward (pass `comm_only`) every sum is larger by the number of ranks.
        if self._world ** float(self._sums) > LARGEST:
            self.settle()
        self._exchange.whole(timed)
        self._sums += 1

    def settle(self) -> None:
        """Divide away what sums after the first one added."""
        if self._sums > 1:
            self._arena.gradients.mul_(float(self._world) ** (1 - self._sums))
            self._sums = 1

    def notes(self) -> Dict[str, Any]:
        """The plan and what it was chosen from."""
        return dict(self._told)

    def close(self) -> None:
        """End the exchange's thread."""
        self._exchange.close()
