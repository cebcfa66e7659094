"""How one rank trains by itself, and the interface of every other way.

Oldest Python: 3.6.
"""

from typing import Any, Callable, Dict, Optional

from adapters.caffempi.arena import Group, Span
from adapters.caffempi.net import Net
from adapters.caffempi.solver import solver_of
from suite.worker.contract import Optimiser

Timed = Callable[[Group, float], None]


class Alone:
    """What comes after a forward pass, whole (`step`) or in stages; ways that exchange override it."""

    def __init__(self, net: Net, rule: Optimiser) -> None:
        """A solver of its own; the net's weights are those to begin with."""
        self._net, self._arena = net, net.arena
        self._solver = solver_of(net.arena, rule)
        self._all = Span(0, len(net.arena.gradients))

    def step(self) -> None:
        """Backward, exchange and update, as fast as they go."""
        self.step_alone()

    def step_alone(self) -> None:
        """The same without any exchange."""
        self._net.backward()
        self._solver.begin()
        self._solver.update(self._all)

    def begin(self) -> None:
        """A staged backward has written new gradients."""

    def communicate(self, timed: Optional[Timed]) -> None:
        """The stage; `timed` gets the seconds of every group."""

    def settle(self) -> None:
        """Make the gradients what they are called: after `communicate`, the average."""

    def update(self) -> None:
        """The stage."""
        self.settle()
        self._solver.begin()
        self._solver.update(self._all)

    def count(self) -> None:
        """From now on count what `notes` tells of a training."""

    def notes(self) -> Dict[str, Any]:
        """What was chosen, measured and counted."""
        return {}

    def close(self) -> None:
        """Leave nothing on its way; all ranks come here."""
