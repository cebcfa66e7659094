"""How stale the weights are that an asynchronous worker computes with: the updates that others made meanwhile.

Oldest Python: 3.6.
"""

from typing import Any, Dict


class Staleness:
    """One worker's account of it, from the numbers that the server gives its updates."""

    def __init__(self, updates: int) -> None:
        """This worker has the weights after so many updates."""
        self._last, self._steps, self._sum, self._most = updates, 0, 0, 0

    def step(self, updates: int) -> None:
        """This worker's push became the update of that number, and brought the weights after it."""
        others = updates - self._last - 1
        self._last = updates
        self._steps += 1
        self._sum += others
        self._most = max(self._most, others)

    def notes(self) -> Dict[str, Any]:
        """Updates of others a step: mean, max, and over how many steps."""
        return {"mean": self._sum / float(max(1, self._steps)), "max": self._most, "steps": self._steps}
