"""How stale the weights are that an asynchronous worker computes with: the updates that others made meanwhile.

Standard library only.
"""

from typing import Any, Dict


class Staleness:
    """One worker's count, one entry per step, between `begin` (see `Trainer.begin_training`) and `notes`.

    Where the server numbers its updates, report every exchange to `exchanged`, whether it counts or not. Where
    what others did is known directly, report it to `missed`.
    """

    def __init__(self, updates: int = 0) -> None:
        """This worker has the weights after so many updates; nothing counts yet."""
        self._last, self._counting = updates, False
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
        """This worker's push became update number `updates` and brought back the weights after it."""
        others, self._last = updates - self._last - 1, updates
        self.missed(others)

    def missed(self, others: int) -> None:
        """A step's weights lacked so many updates of other workers when its own was made."""
        if self._counting:
            self._steps += 1
            self._sum += others
            self._most = max(self._most, others)

    def notes(self) -> Dict[str, Any]:
        """{"staleness": {"mean", "max", "steps"}} for `Trainer.notes`; empty where no step was counted."""
        if not self._steps:
            return {}
        return {"staleness": {"mean": self._sum / float(self._steps), "max": self._most, "steps": self._steps}}
