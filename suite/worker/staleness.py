"""The staleness of an asynchronous worker's weights: the updates that other workers made since it received them.

Standard library only.
"""

from typing import Any, Dict


class Staleness:
    """The count of one worker, one entry per step, between `begin` (see `Trainer.begin_training`) and `notes`.

    If the server numbers its updates, report every exchange to `exchanged`, whether it counts or not. If the number of
    the other workers' updates is known directly, report it to `missed`.
    """

    def __init__(self, updates: int = 0) -> None:
        """Begin with the weights after `updates` updates; nothing counts yet."""
        self._last = updates
        self._counting = False
        self._steps = self._sum = self._most = 0

    @property
    def updates(self) -> int:
        """The number of the last update that this worker knows of."""
        return self._last

    def begin(self) -> None:
        """Count from now on: other passes exchange without training, or stop in between."""
        self._counting = True
        self._steps = self._sum = self._most = 0

    def exchanged(self, updates: int) -> None:
        """Note that this worker's push became update number `updates` and brought back the weights after it."""
        others = updates - self._last - 1
        self._last = updates
        self.missed(others)

    def missed(self, others: int) -> None:
        """Note that a step's weights lacked `others` updates of other workers when its own update was made."""
        if self._counting:
            self._steps += 1
            self._sum += others
            self._most = max(self._most, others)

    def notes(self) -> Dict[str, Any]:
        """Return {"staleness": {"mean", "max", "steps"}} for `Trainer.notes`; empty if no step was counted."""
        if not self._steps:
            return {}
        mean = self._sum / self._steps
        return {"staleness": {"mean": mean, "max": self._most, "steps": self._steps}}
