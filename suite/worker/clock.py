"""The stage clock: a mark at every border between stages."""

from typing import Any, Dict, List

from suite.worker.trainer import Trainer

STAGES = ("io", "h2d", "forward", "backward", "skew", "communication", "update")


class StageClock:
    """Collects marks at the borders of stages; seconds are computed when all is over.

    Iterations follow each other without a gap: one begins at the last mark of the one
    before, so that what lies between them (the release of the old batch, the loop's own
    few microseconds) counts in the next `io`, and the stages add up to the wall time.

    Where marks are events on the device's own time line, the host runs ahead as in a native
    step, and `io` is what the device waits for input. Elsewhere the host waits for the device
    at every border.
    """

    def __init__(self, trainer: Trainer) -> None:
        """A clock on the trainer's own time line."""
        self._synchronize, self._mark, self._elapsed = trainer.synchronize, trainer.mark, trainer.elapsed
        self._waits = not trainer.has_device_marks()
        self._iterations: List[List[Any]] = []

    def begin(self) -> None:
        """Start an iteration, where the one before ended."""
        self._iterations.append([self._iterations[-1][-1] if self._iterations else self._mark()])

    def lap(self) -> None:
        """A stage ends here, and the next one begins."""
        if self._waits:
            self._synchronize()
        self._iterations[-1].append(self._mark())

    def forget(self) -> None:
        """Drop what was collected (warm-up)."""
        del self._iterations[:]

    def seconds(self) -> Dict[str, List[float]]:
        """Per stage, the seconds of every iteration; call after a last `synchronize`."""
        columns: Dict[str, List[float]] = {stage: [] for stage in STAGES}
        for marks in self._iterations:
            for stage, begin, end in zip(STAGES, marks, marks[1:]):
                columns[stage].append(self._elapsed(begin, end))
        return columns
